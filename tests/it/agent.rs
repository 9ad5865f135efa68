//! The agent between a control plane and programs in other languages, and behind nginx.

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
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
  - {identifier_glob: '*', capacity: 100, algorithm: *fair}
rules:
  - {name: health, service: '*', path: /healthz, on_limit: {action: exempt}}
  - {name: caller, service: 'shop', path: '/orders/{id}', resource: 'caller/{client_ip}'}
  - {name: tenant, service: 'shop', path: /tenant, resource: 'tenant/{header:x-tenant}', on_missing_key: reject}
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

/// A server that answers every request with its path.
fn backend() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens").to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let mut lines = BufReader::new(stream.try_clone().expect("a socket"));
            lines.read_line(&mut line).unwrap_or_default();
            let path = line.split(' ').nth(1).unwrap_or_default();
            let head = "HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\n";
            write!(stream, "{head}{path}").unwrap_or_default();
        }
    });
    address
}

/// nginx with the example's configuration.
struct Nginx {
    _process: Process,
    address: String,
    _home: TempDir,
}

impl Nginx {
    fn start(agent: &Agent) -> Self {
        let home = TempDir::new().expect("a temporary directory");
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
        let config = replaced.iter().fold(config, |config, (from, to)| {
            assert!(config.contains(from), "{from}");
            config.replace(from, to)
        });
        fs::write(path("nginx.conf"), config).expect("the directory is new");
        // As root it would change to a user that cannot reach the directory.
        let user = if rustix::process::geteuid().is_root() {
            "user root; "
        } else {
            ""
        };
        let globals = format!("{user}daemon off; pid {};", path("nginx.pid"));
        let prefix = home.path().display().to_string();
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].map(Path::new);
        let program = program.into_iter().find(|it| it.exists());
        let process = Process::start(
            program.expect("tests/run installs it"),
            &[
                "-p",
                &prefix,
                "-c",
                "nginx.conf",
                "-e",
                "stderr",
                "-g",
                &globals,
            ],
        );
        let nginx = Self {
            _process: process,
            address: format!("http://{address}"),
            _home: home,
        };
        until("nginx listens", || TcpStream::connect(&address).is_ok());
        nginx
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
