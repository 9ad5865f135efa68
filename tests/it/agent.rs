//! The agent between a control plane and programs in other languages, and behind nginx.

use std::{
    fs,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{ControlPlane, Process, Response, curl, doorman, now, repository, until};

const LIMITS: &str = "
resources:
  - identifier_glob: pool
    capacity: 2
    unit: gauge
    safe_capacity: 0
    algorithm: &fair {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 1}
  - {identifier_glob: 'api', capacity: 1000, safe_capacity: 1, algorithm: *fair}
  - {identifier_glob: 'caller/*', capacity: 2, algorithm: *fair}
  - {identifier_glob: 'hourly/*', capacity: 1, per: 3600, algorithm: *fair}
  - {identifier_glob: '*', capacity: 100, algorithm: *fair}
rules:
  - {name: health, service: '*', path: /healthz, on_limit: {action: exempt}}
  - {name: caller, service: 'shop', path: '/orders/{id}', resource: 'caller/{client_ip}'}
  - {name: tenant, service: 'shop', path: /tenant, resource: 'tenant/{header:x-tenant}', on_missing_key: reject}
  - {name: page, service: 'shop', path: '/pages/{id}', resource: hourly/page}
  - {name: model, service: 'shop', path: '/v1/models/{id}', resource: hourly/model}
";

/// A running agent, with its socket in a directory of its own.
struct Agent {
    process: Process,
    address: String,
    home: TempDir,
}

impl Agent {
    /// On TCP and a Unix socket.
    fn start(server: &str, flags: &[&str]) -> Self {
        let home = TempDir::new().expect("a temporary directory");
        let socket = format!("unix:{}", home.path().join("agent.sock").display());
        let mut args = vec!["agent", "--server", server, "--listen", "127.0.0.1:0"];
        args.extend(["--listen", &socket, "--service", "shop"]);
        args.extend(flags);
        let mut process = Process::start(&doorman(), &args);
        // A warning may name the control plane before.
        let address = process.wait_for(|line| {
            let address = line.strip_prefix("Listening on ")?;
            address.starts_with("http").then(|| address.to_owned())
        });
        process.wait_for(|line| line.contains("agent.sock").then_some(()));
        let agent = Self {
            process,
            address,
            home,
        };
        until("it is ready", || agent.curl("/readyz", &[]).status == 200);
        agent
    }

    fn socket(&self) -> PathBuf {
        self.home.path().join("agent.sock")
    }

    fn curl(&self, path: &str, more: &[&str]) -> Response {
        let url = format!("{}{path}", self.address);
        curl(&[&[&*url], more].concat())
    }

    fn post(&self, path: &str, body: &Value, more: &[&str]) -> Response {
        let body = body.to_string();
        let json = ["-H", "content-type: application/json", "-d", &body];
        self.curl(path, &[&json, more].concat())
    }

    fn check(&self, body: &Value) -> Response {
        self.post("/v1/check", body, &[])
    }

    fn check_by_socket(&self, body: &Value) -> Response {
        let socket = self.socket().display().to_string();
        self.post("/v1/check", body, &["--unix-socket", &socket])
    }

    fn release(&self, permit: &str) -> Value {
        let body = json!({"permits": [permit]});
        json_of(&self.post("/v1/check/release", &body, &[]))["released"].clone()
    }

    /// Runs an example of `examples/agent` beside it, and returns its output.
    fn run(&self, program: &mut Command) -> String {
        let output = program
            .current_dir(repository().join("examples/agent"))
            .arg(self.socket())
            .args(["api", "pool"])
            .output()
            .expect("tests/run installs it");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        String::from_utf8(output.stdout).expect("text")
    }
}

fn json_of(response: &Response) -> Value {
    serde_json::from_str(&response.body).unwrap_or_else(|_| panic!("{response:?}"))
}

fn pool(hold_seconds: f64) -> Value {
    json!({"resource_id": "pool", "unit": "gauge", "hold_seconds": hold_seconds})
}

fn permit(response: &Response) -> String {
    let permit = &json_of(response)["permits"][0]["permit"];
    let permit = permit.as_str();
    permit.unwrap_or_else(|| panic!("{response:?}")).to_owned()
}

#[test]
fn agent_enforces_leases_over_tcp_and_unix_sockets() {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &[]);
    let both = json!({"resources": [{"resource_id": "api"}, pool(30.0)]});
    let first = agent.check_by_socket(&both);
    assert_eq!(first.status, 200, "{first:?}");
    assert!(first.headers.contains("\"api\""), "{first:?}");
    until("the lease counts the unit", || {
        let leases = server.get("/v1/resources/pool/leases");
        leases["leases"][0]["outstanding"] == 1.0
    });
    // Waits for the rest of the units, which the agent leases when it needs them.
    until("the second unit", || agent.check(&pool(30.0)).status == 200);
    let refused = agent.check(&both);
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(json_of(&refused)["violated-policies"], json!(["pool"]));
    assert!(refused.headers.contains("retry-after"), "{refused:?}");

    assert_eq!(agent.release(&permit(&first)), 1);
    assert_eq!(agent.release(&permit(&first)), 0);
    let short = agent.check(&pool(0.5));
    assert_eq!(short.status, 200, "{short:?}");
    let began = now();
    assert_eq!(agent.check(&pool(1.0)).status, 429);
    until("the time ends", || agent.check(&pool(30.0)).status == 200);
    assert!(now() - began < Duration::from_secs(10));
    let metrics = agent.curl("/metrics", &[]).body;
    assert!(
        metrics.contains("doorman_agent_permits_expired_total 1"),
        "{metrics}"
    );
    assert!(metrics.contains(r#"doorman_layer_decisions_total{limit="check""#));
}

#[test]
fn check_waits_until_its_caller_is_gone() {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &[]);
    let units = ["first", "second"].map(|unit| {
        let mut held = None;
        until(unit, || {
            let response = agent.check(&pool(60.0));
            held = (response.status == 200).then(|| permit(&response));
            held.is_some()
        });
        held.expect("it is held")
    });
    let mut waiting = pool(60.0);
    waiting["max_wait"] = json!(60.0);
    let wait = |seconds: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--max-time", seconds, "-d", &waiting.to_string()]);
        curl.args(["-H", "content-type: application/json"]);
        curl.arg(format!("{}/v1/check", agent.address));
        curl.stdout(Stdio::piped())
            .spawn()
            .expect("curl is installed")
    };
    // 28: it timed out.
    let status = wait("1").wait().expect("it ends");
    assert_eq!(status.code(), Some(28));
    let gone = r#"decisions_total{limit="check",outcome="gone"} 1"#;
    until("it left the queue", || {
        agent.curl("/metrics", &[]).body.contains(gone)
    });
    let next = wait("30");
    thread::sleep(Duration::from_millis(200));
    assert_eq!(agent.release(&units[0]), 1);
    let next = next.wait_with_output().expect("it ends").stdout;
    let next: Value = serde_json::from_slice(&next).expect("it is admitted");

    let permit = &next["permits"][0]["permit"];
    let body = json!({"permit": permit, "hold_seconds": 120});
    let renewed = agent.post("/v1/check/renew", &body, &[]);
    assert_eq!(renewed.body, r#"{"hold_seconds":120.0}"#);
    let unknown = json!({"permit": units[0]});
    assert_eq!(agent.post("/v1/check/renew", &unknown, &[]).status, 404);
}

#[test]
fn fallback_applies_without_a_control_plane() {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &[]);
    let api = json!({"resource_id": "api"});
    assert_eq!(agent.check(&api).status, 200);
    drop(server);
    // The lease goes on until its end; a new gauge gets none.
    assert_eq!(agent.check(&api).status, 200);
    let refused = agent.check(&json!({"resource_id": "new", "unit": "gauge"}));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(json_of(&refused)["reason"], "no_lease");
    assert_eq!(agent.curl("/readyz", &[]).status, 200);

    // One that starts now is ready, too.
    let late = Agent::start("http://127.0.0.1:1", &[]);
    assert_eq!(late.check(&api).status, 200);
    assert_eq!(late.check(&pool(1.0)).status, 503);
}

#[test]
fn termination_answers_requests_and_releases_leases() {
    let server = ControlPlane::start(LIMITS);
    let mut agent = Agent::start(server.address(), &[]);
    assert_eq!(agent.check(&json!({"resource_id": "api"})).status, 200);
    until("it holds a lease", || {
        server.get("/v1/resources/api")["clients"] == 1
    });
    let socket = agent.socket();
    assert!(socket.exists());
    let mut late = UnixStream::connect(&socket).expect("it listens");
    let body = json!({"resource_id": "api"}).to_string();
    let length = body.len();
    let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    write!(late, "{head}\r\ncontent-length: {length}\r\n\r\n").expect("it reads");
    agent.process.terminate();
    agent
        .process
        .wait_for(|line| line.contains("shutting down").then_some(()));
    write!(late, "{body}").expect("it reads");
    let mut response = String::new();
    late.read_to_string(&mut response).expect("it answers");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    agent.process.wait_for_success();
    assert!(!socket.exists());
    assert_eq!(server.get("/v1/resources/api")["clients"], 0);
}

#[test]
fn lease_of_a_gauge_in_use_outlives_the_agent() {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &[]);
    for body in [json!({"resource_id": "api"}), pool(60.0)] {
        assert_eq!(agent.check(&body).status, 200);
    }
    let clients =
        |resource: &str| server.get(&format!("/v1/resources/{resource}"))["clients"].clone();
    until("it holds both leases", || {
        clients("api") == 1 && clients("pool") == 1
    });
    agent.process.terminate();
    agent.process.wait_for_success();
    assert_eq!((clients("api"), clients("pool")), (json!(0), json!(1)));
}

#[test]
fn rules_of_a_file_are_followed() {
    let server = ControlPlane::start(LIMITS);
    let home = TempDir::new().expect("a temporary directory");
    let file = home.path().join("rules.yaml");
    let rule = |resource: &str| {
        let text = format!("rules: [{{name: all, service: '*', resource: '{resource}'}}]");
        fs::write(&file, text).expect("it is writable");
    };
    rule("caller/x");
    let path = file.display().to_string();
    let mut agent = Agent::start(server.address(), &["--rules", &path]);
    let forward = |agent: &Agent| {
        let headers = ["-H", "x-forwarded-method: GET", "-H", "x-forwarded-uri: /a"];
        agent.curl("/v1/forward-auth", &headers)
    };
    until("the limit of 2 per second", || {
        forward(&agent).status == 429
    });
    // An invalid file changes nothing.
    fs::write(&file, "rules: [{name: all}]").expect("it is writable");
    agent
        .process
        .wait_for(|line| line.contains("invalid rules").then_some(()));
    until("it is still limited", || forward(&agent).status == 429);
    rule("api");
    until("the limit of 1000 per second", || {
        let headers = forward(&agent).headers;
        headers.contains("q=1000")
    });

    fs::write(
        &file,
        "rules:\n- {name: all, service: x, resource: a, cost: -1}",
    )
    .expect("writable");
    let output = Command::new(doorman())
        .args(["agent", "--listen", "127.0.0.1:0", "--rules", &path])
        .output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("rules.yaml:2:") && text.contains("cost"),
        "{text}"
    );
}

#[test]
fn agent_without_authentication_listens_on_loopback_only() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("it listens");
    let listen = |flags: &[&str]| {
        let mut command = Command::new(doorman());
        command.args(["agent", "--server", &format!("http://{address}")]);
        command.arg("--listen").args(flags);
        command.output().expect("it runs")
    };
    let public = listen(&["0.0.0.0:0"]);
    let text = String::from_utf8_lossy(&public.stderr);
    assert_eq!(public.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains("--insecure-no-auth") && text.contains("unix:PATH"),
        "{text}"
    );
    for wrong in ["unix:", "nowhere"] {
        assert_eq!(listen(&[wrong]).status.code(), Some(2));
    }
    let nowhere = listen(&["unix:/nonexistent/agent.sock"]);
    let text = String::from_utf8_lossy(&nowhere.stderr);
    assert_eq!(nowhere.status.code(), Some(1), "{text}");
    assert!(
        text.contains("cannot listen on unix:/nonexistent/agent.sock"),
        "{text}"
    );
    server.set_nonblocking(true).expect("a socket");
    let error = server.accept().expect_err("no agent sends a request");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

/// A server that answers every request with its path, and `/status/…` with that status.
fn backend() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens").to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(|| respond(stream).unwrap_or_default());
        }
    });
    address
}

fn respond(mut stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default();
    let mut length = 0;
    loop {
        let mut field = String::new();
        reader.read_line(&mut field)?;
        let field = field.trim().to_ascii_lowercase();
        if field.is_empty() {
            break;
        }
        if let Some(value) = field.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or_default();
        }
    }
    io::copy(&mut reader.take(length), &mut io::sink())?;
    let status = path.strip_prefix("/status/").unwrap_or("200");
    let head = format!("HTTP/1.0 {status} \r\ncontent-type: text/plain\r\nretry-after: 7\r\n");
    write!(stream, "{head}\r\n{path}")
}

/// nginx with the example's configuration.
struct Nginx {
    _process: Process,
    address: String,
    home: TempDir,
}

impl Nginx {
    fn start(agent: &Agent) -> Self {
        Self::with(agent, &[])
    }

    /// With changes of the example. `/var/www` has `index.html` and `429.html`.
    fn with(agent: &Agent, changes: &[(&str, &str)]) -> Self {
        let home = TempDir::new().expect("a temporary directory");
        for page in ["index.html", "429.html"] {
            fs::write(home.path().join(page), page).expect("the directory is new");
        }
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let address = port.expect("a port").to_string();
        let example = repository().join("examples/agent/nginx.conf");
        let config = fs::read_to_string(example).expect("the example exists");
        let path = |name: &str| home.path().join(name).display().to_string();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|it| format!("    {it}_temp_path {};\n", path(it)))
            .concat();
        let replaced = [
            ("127.0.0.1:8080", address.clone()),
            ("127.0.0.1:9000", backend()),
            (
                "/run/doorman/agent.sock",
                agent.socket().display().to_string(),
            ),
            (
                "http {\n",
                format!("http {{\n{temporary}    access_log off;\n"),
            ),
        ];
        let replaced = replaced.iter().map(|(from, to)| (*from, &**to));
        let config = changes
            .iter()
            .copied()
            .chain(replaced)
            .fold(config, |config, (from, to)| {
                assert!(config.contains(from), "{from}");
                config.replace(from, to)
            });
        let config = config.replace("/var/www", &home.path().display().to_string());
        fs::write(path("nginx.conf"), config).expect("the directory is new");
        let process = Self::run(home.path());
        let nginx = Self {
            _process: process,
            address: format!("http://{address}"),
            home,
        };
        until("nginx listens", || TcpStream::connect(&address).is_ok());
        nginx
    }

    /// With the configuration in a directory.
    fn run(home: &Path) -> Process {
        // As root it would change to a user that cannot reach the directory.
        let user = if rustix::process::geteuid().is_root() {
            "user root; "
        } else {
            ""
        };
        let (prefix, pid) = (home.display().to_string(), home.join("nginx.pid"));
        let globals = format!("{user}daemon off; pid {};", pid.display());
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].map(Path::new);
        let program = program.into_iter().find(|it| it.exists());
        let program = program.expect("tests/run installs it");
        let files = ["-p", &prefix, "-c", "nginx.conf", "-e", "stderr"];
        Process::start(program, &[&files[..], &["-g", &globals]].concat())
    }

    fn get(&self, path: &str, more: &[&str]) -> Response {
        let url = format!("{}{path}", self.address);
        curl(&[&[&*url], more].concat())
    }
}

#[test]
fn nginx_forwards_what_the_agent_admits() {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &[]);
    let nginx = Nginx::start(&agent);
    let admitted = nginx.get("/orders/7?x=1", &[]);
    assert_eq!((admitted.status, &*admitted.body), (200, "/orders/7?x=1"));
    until("the lease", || {
        let headers = nginx.get("/orders/7", &[]).headers;
        headers.contains("RateLimit: \"caller\";r=")
    });

    // A caller cannot describe another request, nor be another caller.
    let forged = [
        "-H",
        "x-forwarded-uri: /healthz",
        "-H",
        "x-forwarded-for: 192.0.2.1",
    ];
    let mut refused = None;
    until("the limit of 2 per second", || {
        let response = nginx.get("/orders/7", &forged);
        refused = (response.status == 429).then_some(response);
        refused.is_some()
    });
    let refused = refused.expect("it is refused");
    for header in [
        "Retry-After: 1",
        "RateLimit: \"caller\";r=0",
        "RateLimit-Policy: \"caller\";q=2;w=1",
    ] {
        assert!(refused.headers.contains(header), "{header} in {refused:?}");
    }
    // Neither another spelling of the path nor gRPC evades the limit.
    until("the limit of the other spelling", || {
        nginx.get("//%6frders/7", &["--path-as-is"]).status == 429
    });
    let grpc = ["-X", "POST", "-H", "content-type: application/grpc"];
    until("the limit of gRPC", || {
        nginx.get("/orders/7", &grpc).status == 429
    });
    assert_eq!(nginx.get("/tenant", &[]).status, 400);
    assert_eq!(nginx.get("/healthz", &forged).status, 200);
    // Only nginx itself asks the agent.
    assert_eq!(nginx.get("/doorman", &[]).status, 404);

    agent.process.terminate();
    agent.process.wait_for_success();
    assert_eq!(nginx.get("/healthz", &[]).status, 503);
}

#[test]
fn nginx_asks_about_large_bodies() {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &[]);
    let size = (
        "location / {",
        "location / {\n            client_max_body_size 50m;",
    );
    let nginx = Nginx::with(&agent, &[size]);
    let file = nginx.home.path().join("large");
    fs::write(&file, vec![0; 2_000_000]).expect("the directory is new");
    let body = format!("@{}", file.display());
    for more in ["x-length: known", "transfer-encoding: chunked"] {
        let post = ["--data-binary", &body, "-H", "expect:", "-H", more];
        let response = nginx.get("/upload", &post);
        assert_eq!(response.status, 200, "{more} {response:?}");
    }
}

#[test]
fn nginx_charges_a_redirected_request_once() {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &["--request-id-header", "x-request-id"]);
    let files = (
        "proxy_pass http://127.0.0.1:9000;\n        }",
        "root /var/www;\n            try_files $uri /index.html;\n        }",
    );
    let nginx = Nginx::with(&agent, &[files]);
    // The limit is one in an hour.
    let first = nginx.get("/pages/1", &[]);
    assert_eq!(
        (first.status, &*first.body),
        (200, "index.html"),
        "{first:?}"
    );
    // A caller cannot choose the id.
    for forged in ["x-request-id: a", "x-request-id: a"] {
        let refused = nginx.get("/pages/1", &["-H", forged]);
        assert_eq!(refused.status, 429, "{refused:?}");
    }
}

#[test]
fn nginx_shows_pages_of_errors() {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &[]);
    let pages = [
        (
            "        # error_page 429",
            "        proxy_intercept_errors on;\n        error_page 429",
        ),
        (
            "        # location = /429.html {\n        #     internal;\n        #     root",
            "        location = /429.html {\n            internal;\n            root",
        ),
        ("        #     add_header", "            add_header"),
        ("        # }", "        }"),
        (
            "location / {",
            "location / {\n            error_page 429 /429.html;",
        ),
    ];
    let nginx = Nginx::with(&agent, &pages);
    assert_eq!(nginx.get("/pages/1", &[]).status, 200);
    for (path, retry_after) in [
        ("/pages/1", "Retry-After: 3"),
        ("/status/429", "Retry-After: 7"),
    ] {
        let response = nginx.get(path, &[]);
        assert_eq!(
            (response.status, &*response.body),
            (429, "429.html"),
            "{path} {response:?}"
        );
        assert!(
            response.headers.contains(retry_after),
            "{path} {response:?}"
        );
        assert_eq!(
            response.headers.matches("Retry-After").count(),
            1,
            "{response:?}"
        );
    }
    // The agent has admitted it.
    assert_eq!(nginx.get("/status/500", &[]).status, 500);
    assert_eq!(nginx.get("/tenant", &[]).status, 400);
}

/// Spellings of paths of the rule `model`, as a request line has them.
const MODELS: [&str; 23] = [
    "/v1/models/a?x=1",
    "/v1/models/a;b=1",
    "/v1/models/a:b",
    "/v1/models/a%3Ab",
    "/v1/models/a%3ab",
    "/v1/models/caf%c3%a9",
    "/v1/models/a%2Fb",
    "/v1/models/%2e",
    "/v1/%6dodels/a",
    "/v1/%6Dodels/a",
    "/%76%31/models/a",
    "/v1//models/a",
    "//v1/models///a",
    "/./v1/models/a",
    "/x/../v1/models/a",
    "/x/%2e%2E/v1/models/a",
    "/healthz/..%2fv1/models/a",
    "/v1/models/a/b/..",
    "/v1%2Fmodels%2Fa",
    "/v1/models%2fa",
    "/v1\\models\\a",
    "/v1%5Cmodels/a",
    "/v1/models/a?/../../healthz",
];

/// Other paths, which the rule does not limit.
const NO_MODELS: [&str; 4] = ["/v1/models", "/v1/models/a/b", "/v1/other/a", "/healthz"];

/// The limit is one in an hour: `get` sends the path as it is, and returns the status.
fn limits_all_spellings(get: impl Fn(&str) -> u16) {
    assert_eq!(get("/v1/models/a"), 200);
    for path in MODELS {
        assert_eq!(get(path), 429, "{path}");
    }
    for path in NO_MODELS {
        assert_eq!(get(path), 200, "{path}");
    }
    // No request line has these characters, but some servers accept them.
    for path in ["/v1/models/a#/healthz", "/v1/models/caf\u{e9}"] {
        assert!([400, 429].contains(&get(path)), "{path}");
    }
}

#[test]
fn nginx_limits_all_spellings_of_a_path() {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &[]);
    let nginx = Nginx::start(&agent);
    limits_all_spellings(|path| nginx.get("", &["--request-target", path]).status);
    let absolute = "http://shop.example/v1/models/a";
    let response = nginx.get("", &["--request-target", absolute]);
    assert_eq!(response.status, 429, "{response:?}");
}

/// As its documentation says: the path and the method in headers, with those of the request.
#[test]
fn requests_of_traefik_are_limited_in_all_spellings() {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &[]);
    limits_all_spellings(|path| {
        let uri = format!("X-Forwarded-Uri: {path}");
        let headers = [
            "X-Forwarded-Method: POST",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: shop.example",
            "X-Forwarded-For: 192.0.2.7",
            &uri,
        ];
        let more: Vec<_> = headers.into_iter().flat_map(|it| ["-H", it]).collect();
        agent.curl("/v1/forward-auth", &more).status
    });
}

/// As its documentation says: the method, the host, and the path behind `path_prefix`.
#[test]
fn requests_of_envoy_are_limited_in_all_spellings() {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &[]);
    limits_all_spellings(|path| {
        let target = format!("/v1/forward-auth{path}");
        let host = ["-H", "host: shop.example", "-H", "content-length: 0"];
        let line = ["-X", "POST", "--request-target", &target];
        agent.curl("", &[host, line].concat()).status
    });
}

/// Runs a client alone, and while others hold all units.
fn runs_within_limits(program: &str, args: &[&str]) {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &[]);
    let run = || agent.run(Command::new(program).args(args));
    let output = run();
    assert_eq!(output.matches("done").count(), 5, "{output}");
    for unit in ["first", "second"] {
        until(unit, || agent.check(&pool(60.0)).status == 200);
    }
    let output = run();
    assert_eq!(output.matches("refused by").count(), 5, "{output}");
    assert!(output.contains("pool"), "{output}");
}

#[test]
fn python_client_takes_and_releases() {
    runs_within_limits("python3", &["client.py"]);
}

#[test]
fn python_client_survives_a_closed_idle_connection() {
    let server = ControlPlane::start(LIMITS);
    let agent = Agent::start(server.address(), &[]);
    let program = "
import client, socket, sys
agent = client.Agent(sys.argv[1])
for _ in range(2):
    print(agent.check({'resource_id': 'api'}))
    agent.connection.sock.shutdown(socket.SHUT_RDWR)
";
    let output = agent.run(Command::new("python3").args(["-B", "-c", program]));
    assert_eq!(output, "[]\n[]\n");
}

#[test]
fn go_client_takes_and_releases() {
    runs_within_limits("go", &["run", "client.go"]);
}
