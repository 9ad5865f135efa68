//! The files in `deploy/` match the program: their commands run, and alerts and dashboard name
//! metrics that it exports. `kubernetes` has the manifests.

use std::{
    collections::BTreeSet,
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::support::{Authority, ControlPlane, Etcd, Process, doorman, image, repository, until};

/// The layer's metrics are tested in its own crate.
const LAYER_PREFIX: &str = "doorman_layer_";

/// Makes a server export every series: shared, bucketed and suppressed resources.
const DOCUMENT: &str = "resources: [\
    {identifier_glob: db, capacity: 10, algorithm: {kind: FAIR_SHARE}}, \
    {identifier_glob: bucket, capacity: 4, algorithm: {kind: SHARED_BUCKET}}, \
    {identifier_glob: part, capacity: 4, algorithm: {kind: SUPPRESSION}}]";

const REQUEST: &str = r#"{"client_id":"a","resources":[
    {"resource_id":"db","wants":5},{"resource_id":"bucket","wants":5},{"resource_id":"part","wants":5}]}"#;

/// A metric used in an expression, and the literal values of each label.
#[derive(Debug)]
struct MetricUse<'a> {
    metric: &'a str,
    labels: Vec<(&'a str, Vec<&'a str>)>,
}

fn is_name_char(byte: char) -> bool {
    byte.is_ascii_lowercase() || byte == '_'
}

/// Every metric of Doorman in a text, with its matchers.
fn metric_uses(text: &str) -> Vec<MetricUse<'_>> {
    let starts = text.match_indices("doorman_").map(|(at, _)| &text[at..]);
    starts
        .map(|text| {
            let (metric, rest) =
                text.split_at(text.find(|it| !is_name_char(it)).unwrap_or(text.len()));
            let matchers = rest.strip_prefix('{').and_then(|it| it.split_once('}'));
            let labels = matchers.map_or(Vec::new(), |(it, _)| it.split(", ").map(label).collect());
            MetricUse { metric, labels }
        })
        .collect()
}

fn label(matcher: &str) -> (&str, Vec<&str>) {
    let (name, rest) = matcher
        .split_once('=')
        .unwrap_or_else(|| panic!("{matcher}"));
    let values = rest.trim_matches(['~', '"', '\\']).split('|');
    let plain = |value: &&str| value.chars().all(|it| is_name_char(it) || it == '/');
    (name, values.filter(plain).collect())
}

fn read_deployed(path: &str) -> String {
    let path = repository().join("deploy").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn alerts_and_dashboard_use_exported_metrics() {
    let server = ControlPlane::start_encrypted(DOCUMENT, &Authority::new());
    server.post("/v1/capacity", REQUEST);
    server.curl("/nowhere", &[]);
    let root = ControlPlane::start(DOCUMENT);
    let home = TempDir::new().expect("a temporary directory");
    let below = ["--parent", root.address(), "--node", "below"];
    let node = ControlPlane::start_with_flags(home, &below);
    let etcd = Etcd::start();
    let home = TempDir::new().expect("a temporary directory");
    let elected = ControlPlane::start_with_flags(home, &["--etcd-endpoints", &etcd.endpoints()]);
    let followed = ControlPlane::start(
        "resources: [{identifier_glob: partner, capacity: 9, feedback: {}, algorithm: {kind: FAIR_SHARE}}]",
    );
    followed.post(
        "/v1/capacity",
        r#"{"client_id": "c", "seq": 1, "resources": [{"resource_id": "partner", "wants": 1, "outcomes": {}}]}"#,
    );
    let scrapes = [&server, &node, &elected, &followed].map(|it| it.curl("/metrics", &[]).body);
    let scrape = scrapes.concat();
    let series: Vec<_> = scrape
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let names: BTreeSet<_> = series
        .iter()
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    for file in [
        "grafana/doorman.json",
        "prometheus/alerts.yaml",
        "prometheus/alerts.test.yaml",
    ] {
        let text = read_deployed(file);
        let all = metric_uses(&text);
        assert!(all.len() > 10, "{file} uses {all:?}");
        for MetricUse { metric, labels } in all {
            if metric.starts_with(LAYER_PREFIX) {
                continue;
            }
            assert!(names.contains(metric), "{file}: {metric} in\n{scrape}");
            // Prometheus adds these to every series.
            let ours = labels
                .iter()
                .filter(|(name, _)| !["job", "instance"].contains(name));
            for (name, values) in ours {
                let has = |label: &str| {
                    let of = |line: &&str| line.starts_with(metric) && line.contains(label);
                    series.iter().any(of)
                };
                assert!(
                    has(&format!("{name}=\"")),
                    "{file}: {metric} has no label {name}"
                );
                for value in values {
                    let label = format!("{name}=\"{value}\"");
                    assert!(has(&label), "{file}: {metric} has no {label}");
                }
            }
        }
    }
}

#[test]
fn every_alert_has_a_section_in_operations() {
    let guide =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/OPERATIONS.md"))
            .unwrap();
    let alerts = read_deployed("prometheus/alerts.yaml");
    let names: Vec<_> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let anchor = name.to_lowercase();
        assert!(
            alerts.contains(&format!("docs/OPERATIONS.md#{anchor}")),
            "{name} must link its section"
        );
        assert!(guide.contains(&format!("\n### {name}\n")), "{name}");
    }
}

/// Runs a tool on a file of `deploy`, in its folder, and asserts that it has no complaint.
fn assert_accepts(tool: &str, args: &[&str], folder: &str) {
    let output = Command::new(tool)
        .args(args)
        .current_dir(repository().join("deploy").join(folder))
        .output()
        .expect("it is installed");
    assert_silent(&format!("{tool} {args:?}"), &output);
}

fn assert_silent(name: &str, output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{name}: {}{errors}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn alerts_pass_their_tests() {
    for args in [
        ["test", "rules", "alerts.test.yaml"],
        // With the alerts, which it names.
        ["check", "config", "scrape.yaml"],
    ] {
        assert_accepts("promtool", &args, "prometheus");
    }
}

#[test]
fn systemd_knows_all_settings_of_the_unit() {
    let home = TempDir::new().expect("a temporary directory");
    let unit = read_deployed("systemd/doorman.service");
    let program = doorman().display().to_string();
    let unit = unit.replace("/usr/local/bin/doorman", &program);
    fs::write(home.path().join("doorman.service"), unit).expect("the directory is new");
    let drop_ins = home.path().join("doorman.service.d");
    fs::create_dir(&drop_ins).expect("the directory is new");
    for name in ["auth.conf", "tls.conf"] {
        let text = read_deployed(&format!("systemd/{name}"));
        fs::write(drop_ins.join(name), text).expect("the directory is new");
    }
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "./doorman.service"])
        .current_dir(home.path())
        .output()
        .expect("it is installed");
    assert_silent("systemd-analyze", &output);
}

/// The commands in the comments of a file.
fn commands(path: &str) -> Vec<String> {
    let text = read_deployed(path);
    let comments = text.lines().filter_map(|line| line.strip_prefix("#   "));
    comments.map(str::to_owned).collect()
}

/// A machine in a folder: commands in it find the files of `deploy/systemd` in their directory.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let home = TempDir::new().expect("a temporary directory");
        let folders = [
            "etc/systemd/system",
            "etc/doorman",
            "usr/local/bin",
            "stubs",
            "state",
        ];
        for folder in folders {
            fs::create_dir_all(home.path().join(folder)).expect("the directory is new");
        }
        for name in ["systemctl", "groupadd"] {
            let stub = home.path().join("stubs").join(name);
            fs::write(&stub, "#!/bin/sh\n").expect("the directory is new");
            fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).expect("we own it");
        }
        for name in ["doorman.service", "doorman.env", "auth.conf", "tls.conf"] {
            let text = read_deployed(&format!("systemd/{name}"));
            fs::write(home.path().join(name), text).expect("the directory is new");
        }
        fs::copy(doorman(), home.path().join("doorman")).expect("it is built");
        Authority::new().issue(home.path(), "tls");
        Self(home)
    }

    /// A path of the machine.
    fn path(&self, path: &str) -> String {
        self.0
            .path()
            .join(path.trim_start_matches('/'))
            .display()
            .to_string()
    }

    /// Replaces paths of the machine in a command or setting.
    fn localize(&self, text: &str) -> String {
        ["/etc/", "/usr/local/bin/"]
            .iter()
            .fold(text.to_owned(), |text, path| {
                text.replace(path, &format!("{}/", self.path(path)))
            })
    }

    fn run(&self, command: &str) -> bool {
        // The group exists only on a real machine.
        let command = self.localize(command).replace("-g doorman-tls ", "");
        let path = std::env::var("PATH").expect("tests have a path");
        let bin = format!(
            "{}:{}:{path}",
            self.path("stubs"),
            self.path("usr/local/bin")
        );
        let mut shell = Command::new("bash");
        shell.args(["-c", &command]).current_dir(self.0.path());
        shell
            .env("PATH", bin)
            .status()
            .expect("there is a shell")
            .success()
    }

    /// Starts the installed unit with its drop-ins, as systemd does.
    fn start(&self, address: Ipv4Addr) -> Process {
        let unit = "etc/systemd/system/doorman.service";
        let files = [
            unit.to_owned(),
            format!("{unit}.d/auth.conf"),
            format!("{unit}.d/tls.conf"),
        ];
        let settings = files.map(|it| fs::read_to_string(self.path(&it)).expect("it is installed"));
        let settings = settings.concat();
        let values = |name: &'static str| {
            let lines = settings.lines();
            lines.filter_map(move |line| line.strip_prefix(name)?.strip_prefix('='))
        };
        let start = values("ExecStart").next().expect("a command");
        let start = self.localize(start);
        let (program, args) = start.split_once(' ').expect("arguments");
        let mut command = Command::new(program);
        command.args(args.split(' '));
        for variable in values("Environment") {
            let (name, value) = variable.split_once('=').expect("NAME=VALUE");
            let value = value.replace("%S", &self.path("state"));
            let value = value.replace("%d", &self.path("credentials"));
            let value = value.replace("0.0.0.0", &address.to_string());
            command.env(name, self.localize(&value));
        }
        let file = values("EnvironmentFile").next().expect("settings");
        let file = self.localize(file.trim_start_matches('-'));
        let lines = fs::read_to_string(file).expect("it is installed");
        let lines = lines.lines().filter(|line| !line.starts_with('#'));
        for (name, value) in lines.filter_map(|line| line.split_once('=')) {
            command.env(name, value);
        }
        let credential = values("LoadCredential").next().expect("a secret");
        let (name, source) = credential.split_once(':').expect("NAME:PATH");
        fs::create_dir_all(self.path("credentials")).expect("we own it");
        fs::copy(
            self.localize(source),
            self.path(&format!("credentials/{name}")),
        )
        .expect("it was created");
        Process::spawn(command)
    }
}

#[test]
fn systemd_unit_keeps_its_settings_when_it_is_installed_again() {
    let machine = Machine::new();
    for round in ["installation", "upgrade"] {
        for file in ["doorman.service", "auth.conf", "tls.conf"] {
            for command in commands(&format!("systemd/{file}")) {
                // A new secret would end the tokens of the first one.
                let succeeds = round == "installation" || !command.contains("urandom");
                assert_eq!(machine.run(&command), succeeds, "{round}: {command}");
            }
        }
        if round == "installation" {
            let setting = "DOORMAN_NODE=installed\nDOORMAN_LOG_FORMAT=json\n";
            fs::write(machine.path("etc/doorman/doorman.env"), setting).expect("it is installed");
        }
    }
    let [b, c, d] = [(); 3].map(|()| fastrand::u8(1..250));
    let address = Ipv4Addr::new(127, b, c, d);
    let mut server = machine.start(address);
    let node = server.wait_for(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(line["node"].as_str()?.to_owned())
    });
    assert_eq!(node, "installed");
}

/// Words of a line of the Dockerfile, `NAME ["WORD", …]`.
fn words(name: &str) -> Vec<String> {
    let text = read_deployed("container/Dockerfile");
    let mut lines = text.lines().filter(|line| line.starts_with(name));
    let line = lines.next().unwrap_or_else(|| panic!("no {name}"));
    let list = line.split_at(line.find('[').expect("a list")).1;
    serde_json::from_str(list).expect("words")
}

#[test]
fn container_is_healthy() {
    let home = TempDir::new().expect("a temporary directory");
    Authority::new().issue(home.path(), "tls");
    fs::write(home.path().join("secret"), [b'x'; 32]).expect("the directory is new");
    let [b, c, d] = [(); 3].map(|()| fastrand::u8(1..250));
    let address = Ipv4Addr::new(127, b, c, d).to_string();
    // The options of `docker run` in the comments.
    let text = read_deployed("container/Dockerfile").replace("\\\n", "");
    let options = text
        .split(" -e ")
        .skip(1)
        .filter_map(|it| it.split_whitespace().next());
    let options = options.map(|it| it.split_once('=').expect("NAME=VALUE"));
    let mut variables = image();
    variables.extend(options.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let folder = home.path().display().to_string();
    for value in variables.values_mut() {
        *value = value.replace("0.0.0.0", &address);
        for (path, mounted) in [
            ("/etc/doorman/tls", ""),
            ("/etc/doorman", ""),
            ("/var/lib", "/data"),
        ] {
            *value = value.replace(path, &format!("{folder}{mounted}"));
        }
    }
    assert_eq!(variables.len(), 5, "{variables:?}");
    let run = |words: &[String]| {
        assert_eq!(words[0], "/usr/local/bin/doorman");
        let mut command = Command::new(doorman());
        command.args(&words[1..]).envs(&variables);
        command
    };
    let server = [words("ENTRYPOINT"), words("CMD")].concat();
    let _server = Process::spawn(run(&server));
    let health = words("HEALTHCHECK");
    until("the container is healthy", || {
        run(&health).output().expect("it runs").status.success()
    });
}

#[test]
fn ready_reports_readiness_by_exit_code() {
    let server = ControlPlane::start("resources: []");
    let ready = |address: &str| {
        let mut command = Command::new(doorman());
        let output = command.args(["ready", "--server", address]).output();
        output.expect("it runs").status.code()
    };
    assert_eq!(ready(server.address()), Some(0));
    let address = server.address().to_owned();
    server.terminate();
    assert_eq!(ready(&address), Some(3));
}

#[test]
fn public_address_without_authentication_is_rejected_in_container() {
    let home = TempDir::new().expect("a temporary directory");
    // As in the container.
    let output = Command::new(doorman())
        .arg("serve")
        .env("DOORMAN_LISTEN", "0.0.0.0:0")
        .env("DOORMAN_DATA_DIR", home.path().join("data"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for option in ["--auth-secret-file", "127.0.0.1", "--insecure-no-auth"] {
        assert!(stderr.contains(option), "{option} in: {stderr}");
    }
}
