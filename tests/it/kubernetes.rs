//! The manifests for Kubernetes, built by kustomize.
//!
//! No cluster is needed: the schemas of Kubernetes validate the objects, and the commands of the
//! pods run here, with the image's and the manifests' environment, the files of the volumes, and
//! the probes. Only addresses and folders are replaced.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Authority, Etcd, Process, Response, curl, doorman, image, repository, tool, until,
};

const ONE: &str = "deploy/kubernetes";
const THREE: &str = "deploy/kubernetes-three";

/// The version of Kubernetes whose schemas the manifests must have.
const KUBERNETES: &str = "1.34";

/// A host in the manifests, and the address in its place.
type Host = (String, String);

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a YAML file.
fn documents(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n");
    documents
        .map(|it| serde_saphyr::from_str(it).unwrap_or_else(|error| panic!("{error}: {it}")))
        .collect()
}

/// The objects of a folder of `root`, as `kubectl apply -k` applies them.
fn build(root: &Path, folder: &str) -> Vec<Value> {
    let output = Command::new(tool("kubectl").join("kubectl"))
        .arg("kustomize")
        .arg(root.join(folder))
        .output()
        .expect("it is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    documents(&String::from_utf8(output.stdout).expect("text"))
}

/// A copy of the manifests that uses the component `service-accounts`.
fn with_service_accounts() -> TempDir {
    let home = TempDir::new().expect("a temporary directory");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(repository().join("deploy"))
        .arg(home.path())
        .status();
    assert!(copied.expect("cp is installed").success());
    let file = home.path().join(ONE).join("kustomization.yaml");
    let text = read(&file);
    let used = text.replace(
        "# components:\n#   - service-accounts\n",
        "components:\n  - service-accounts\n",
    );
    assert_ne!(used, text);
    fs::write(file, used).expect("we own it");
    home
}

fn object<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    let mut objects = objects.iter();
    objects.find(|it| it["kind"] == kind && it["metadata"]["name"] == name)
}

/// What identifies an object in the namespace.
fn identity(object: &Value) -> (String, String) {
    let text = |it: &Value| it.as_str().expect("a string").to_owned();
    (text(&object["kind"]), text(&object["metadata"]["name"]))
}

fn stateful_set(objects: &[Value]) -> &Value {
    object(objects, "StatefulSet", "doorman").expect("it is built")
}

fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    let text = value[field].as_str();
    text.unwrap_or_else(|| panic!("no {field} in {value}"))
}

/// The commands in the comments of the kustomization of a folder, without `# `.
fn commands(folder: &str) -> Vec<String> {
    let text = read(repository().join(folder).join("kustomization.yaml"));
    let comments = text.lines().filter_map(|line| line.strip_prefix('#'));
    let starts = ["kubectl ", "(umask ", "doorman "];
    comments
        .map(str::trim)
        .filter(|line| starts.iter().any(|start| line.starts_with(start)))
        .map(str::to_owned)
        .collect()
}

/// A command in the comments of `deploy/kubernetes`, by its beginning.
fn command(start: &str) -> String {
    let commands = commands(ONE).into_iter();
    let mut commands = commands.filter(|it| it.starts_with(start));
    commands.next().expect("it is in the comments")
}

/// The files of each secret, by the names of its keys, as the commands of a folder create it.
fn secrets(folder: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut secrets = BTreeMap::new();
    for command in commands(folder) {
        let Some((_, secret)) = command.split_once(" create secret ") else {
            continue;
        };
        let secret = secret.split(" #").next().unwrap_or_default();
        let words: Vec<_> = secret.split_whitespace().collect();
        let files = words.iter().filter_map(|word| {
            let (option, file) = word.split_once('=')?;
            let key = match option {
                "--from-file" => file,
                "--cert" => "tls.crt",
                "--key" => "tls.key",
                _ => return None,
            };
            Some((key.to_owned(), file.to_owned()))
        });
        secrets.insert(words[1].to_owned(), files.collect());
    }
    secrets
}

/// The environment of the container in a pod, as Kubernetes sets it.
fn environment(objects: &[Value], pod: &str) -> BTreeMap<String, String> {
    let mut variables = image();
    let container = &stateful_set(objects)["spec"]["template"]["spec"]["containers"][0];
    for source in elements(&container["envFrom"]) {
        let name = text(&source["configMapRef"], "name");
        let map = object(objects, "ConfigMap", name).expect("it is built");
        for (name, value) in map["data"].as_object().expect("settings") {
            variables.insert(name.clone(), value.as_str().expect("a string").to_owned());
        }
    }
    for variable in elements(&container["env"]) {
        let value = match variable["value"].as_str() {
            Some(value) => value.replace("$(POD_NAME)", pod),
            None => {
                let field = &variable["valueFrom"]["fieldRef"]["fieldPath"];
                assert_eq!(field, "metadata.name");
                pod.to_owned()
            }
        };
        variables.insert(text(variable, "name").to_owned(), value);
    }
    variables
}

/// The machine in place of a cluster: files of secrets, and volumes that survive their pods.
struct Cluster {
    home: TempDir,
    authority: Authority,
    /// The addresses of the pods, which have the ports of the manifests.
    network: [u8; 2],
    hosts: Vec<Host>,
}

struct Pod {
    process: Process,
    address: Ipv4Addr,
}

impl Cluster {
    /// Has the certificates and the secret that the manifests ask for, and etcd.
    fn new(etcd: &Etcd) -> Self {
        let endpoint = etcd.endpoint(0).trim_start_matches("http://");
        let (address, port) = endpoint.split_once(':').expect("a port");
        assert_eq!(port, "2379");
        let network = [(); 2].map(|()| fastrand::u8(1..250));
        let mut hosts = vec![("etcd-client.etcd.svc".to_owned(), address.to_owned())];
        for ordinal in 0..3 {
            let host = format!("doorman-{ordinal}.doorman-servers.doorman.svc");
            hosts.push((host, address_of(network, ordinal).to_string()));
        }
        let cluster = Self {
            home: TempDir::new().expect("a temporary directory"),
            authority: Authority::new(),
            network,
            hosts,
        };
        let home = cluster.home.path();
        let mut names = vec!["doorman.doorman.svc".to_owned()];
        names.extend(
            cluster
                .hosts
                .iter()
                .skip(1)
                .map(|(_, address)| address.clone()),
        );
        cluster.authority.issue_for_all(home, "tls", names);
        fs::write(home.join("ca.crt"), cluster.authority.pem()).expect("the directory is new");
        fs::write(home.join("password"), "unused").expect("the directory is new");
        cluster.shell(&command("(umask ")).expect("it runs");
        cluster
    }

    /// Runs a command of the comments, and returns its output.
    fn shell(&self, command: &str) -> Result<String, String> {
        let programs = doorman().parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").expect("tests have a path");
        let output = Command::new("sh")
            .args(["-c", command])
            .current_dir(self.home.path())
            .env("PATH", format!("{programs}:{path}"))
            .output()
            .expect("there is a shell");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        if output.status.success() {
            Ok(text(output.stdout))
        } else {
            Err(text(output.stderr))
        }
    }

    /// A bearer header with a token of the secret.
    fn token(&self, options: &str) -> String {
        let command = format!("doorman token --secret-file secret --sub test {options}");
        let token = self.shell(&command).expect("there is a secret");
        format!("Authorization: Bearer {}", token.trim())
    }

    /// The folder in place of a volume of a pod, with its files.
    fn volume(&self, objects: &[Value], folder: &str, pod: &str, name: &str) -> PathBuf {
        let set = &stateful_set(objects)["spec"];
        let directory = self.home.path().join(format!("{pod}-{name}"));
        fs::create_dir_all(&directory).expect("we own it");
        let mut claims = elements(&set["volumeClaimTemplates"]);
        if claims.any(|it| it["metadata"]["name"] == name) {
            return directory;
        }
        let mut volumes = elements(&set["template"]["spec"]["volumes"]);
        let volume = volumes.find(|it| it["name"] == name);
        let volume = volume.unwrap_or_else(|| panic!("no volume {name}"));
        let write = |name: &str, content: String| {
            fs::write(directory.join(name), content).expect("we own it");
        };
        if let Some(secret) = volume["secret"]["secretName"].as_str() {
            let mut created = secrets(ONE);
            created.extend(secrets(folder));
            let files = created.get(secret);
            assert!(
                files.is_some() || volume["secret"]["optional"] == true,
                "{secret}"
            );
            for (key, file) in files.into_iter().flatten() {
                write(key, read(self.home.path().join(file)));
            }
        } else if volume["configMap"]["name"] == "kube-root-ca.crt" {
            write("ca.crt", self.authority.pem());
        } else if let Some(name) = volume["configMap"]["name"].as_str() {
            let map = object(objects, "ConfigMap", name);
            assert!(
                map.is_some() || volume["configMap"]["optional"] == true,
                "{name}"
            );
            let files = map.and_then(|it| it["data"].as_object());
            for (name, content) in files.into_iter().flatten() {
                write(name, content.as_str().expect("a string").to_owned());
            }
        } else {
            let token = &volume["projected"]["sources"][0]["serviceAccountToken"];
            write(text(token, "path"), "a token of the cluster".to_owned());
        }
        directory
    }

    /// Starts the command of a pod, and waits until it is ready.
    fn start(&self, objects: &[Value], folder: &str, ordinal: u8) -> Pod {
        let pod = format!("doorman-{ordinal}");
        let address = address_of(self.network, ordinal);
        let container = &stateful_set(objects)["spec"]["template"]["spec"]["containers"][0];
        let mut variables = environment(objects, &pod);
        let listen = ["https", "metrics"].map(|name| {
            let mut ports = elements(&container["ports"]);
            let port = ports.find(|it| it["name"] == name).expect("it has a port");
            format!("0.0.0.0:{}", port["containerPort"])
        });
        assert_eq!(variables["DOORMAN_LISTEN"], listen[0]);
        assert_eq!(variables["DOORMAN_METRICS_LISTEN"], listen[1]);
        let mounts: Vec<_> = elements(&container["volumeMounts"])
            .map(|mount| {
                let volume = self.volume(objects, folder, &pod, text(mount, "name"));
                (text(mount, "mountPath"), volume.display().to_string())
            })
            .collect();
        for value in variables.values_mut() {
            *value = value.replace("0.0.0.0", &address.to_string());
            for (host, address) in &self.hosts {
                *value = value.replace(host, address);
            }
            if value.starts_with('/') {
                let mount = mounts.iter().find(|(path, _)| value.starts_with(path));
                let (path, volume) = mount.unwrap_or_else(|| panic!("{value} is not mounted"));
                *value = value.replacen(path, volume, 1);
            }
        }
        let args: Vec<_> = elements(&container["args"])
            .map(|it| it.as_str().expect("a string"))
            .collect();
        let mut command = Command::new(doorman());
        command.args(args).envs(&variables).current_dir("/");
        let process = Process::spawn(command);
        let pod = Pod { process, address };
        until("the pod is ready", || {
            pod.probe(container, "readinessProbe", &["-k"]) == 200
        });
        for probe in ["startupProbe", "livenessProbe"] {
            assert_eq!(pod.probe(container, probe, &["-k"]), 200, "{probe}");
        }
        pod
    }

    /// Calls a pod as services do, by the name of the Kubernetes Service.
    fn call(&self, pod: &Pod, path: &str, more: &[&str]) -> Response {
        let url = format!("https://doorman.doorman.svc:7300{path}");
        let to = format!("::{}:7300", pod.address);
        let authority = self.home.path().join("ca.crt").display().to_string();
        let args = [&url, "--connect-to", &to, "--cacert", &authority];
        curl(&[&args, more].concat())
    }
}

impl Pod {
    /// Sends SIGTERM, and waits for the end.
    fn stop(self) {
        self.process.terminate();
        self.process.wait_for_success();
    }

    /// The status of a probe; 0 if nobody listens.
    fn probe(&self, container: &Value, name: &str, more: &[&str]) -> u16 {
        let probe = &container[name]["httpGet"];
        let mut ports = elements(&container["ports"]);
        let port = ports
            .find(|it| it["name"] == probe["port"])
            .expect("a port by name");
        let url = format!(
            "{}://{}:{}{}",
            text(probe, "scheme").to_lowercase(),
            self.address,
            port["containerPort"],
            text(probe, "path")
        );
        let output = Command::new("curl")
            .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", &url])
            .args(more)
            .output()
            .expect("curl is installed");
        let status = String::from_utf8(output.stdout).expect("a status");
        status.parse().expect("a status")
    }
}

fn address_of([b, c]: [u8; 2], ordinal: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, b, c, ordinal + 1)
}

/// Every folder and what is built of it, with and without the component.
fn all_builds() -> Vec<(&'static str, Vec<Value>)> {
    let component = with_service_accounts();
    [repository(), component.path()]
        .into_iter()
        .flat_map(|root| [ONE, THREE].map(|folder| (folder, build(root, folder))))
        .collect()
}

#[test]
fn manifests_have_the_schemas_of_kubernetes() {
    let home = TempDir::new().expect("a temporary directory");
    for (number, (_, objects)) in all_builds().iter().enumerate() {
        let file = home.path().join(format!("{number}.yaml"));
        let objects: Vec<_> = objects.iter().map(Value::to_string).collect();
        fs::write(&file, objects.join("\n---\n")).expect("the directory is new");
    }
    let files = fs::read_dir(home.path()).expect("it exists");
    let output = Command::new(tool("python").join("bin/kubernetes-validate"))
        .args(["--strict", "-k", KUBERNETES])
        .args(files.map(|it| it.expect("a file").path()))
        .output()
        .expect("it is installed");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn references_between_manifests_resolve() {
    for (folder, objects) in all_builds() {
        let names: BTreeSet<_> = objects.iter().map(identity).collect();
        assert_eq!(names.len(), objects.len(), "{folder}: duplicates");
        let set = &stateful_set(&objects)["spec"];
        let service = object(&objects, "Service", text(set, "serviceName"));
        assert!(service.is_some(), "{folder}");
        let container = &set["template"]["spec"]["containers"][0];
        let ports: BTreeSet<_> = elements(&container["ports"])
            .map(|it| text(it, "name"))
            .collect();
        let labels = &set["template"]["metadata"]["labels"];
        for object in &objects {
            let spec = &object["spec"];
            let (selector, used) = match text(object, "kind") {
                "Service" => (&spec["selector"], &spec["ports"]),
                "NetworkPolicy" => (&spec["podSelector"]["matchLabels"], &Value::Null),
                "PodDisruptionBudget" => (&spec["selector"]["matchLabels"], &Value::Null),
                _ => continue,
            };
            assert_eq!(selector, labels, "{folder}: {object}");
            for port in elements(used) {
                assert!(ports.contains(text(port, "targetPort")), "{folder}: {port}");
            }
        }
        // A rule without a known port allows nothing.
        let policy = object(&objects, "NetworkPolicy", "doorman").expect("it is built");
        for rule in elements(&policy["spec"]["ingress"]) {
            for port in elements(&rule["ports"]) {
                assert!(ports.contains(text(port, "port")), "{folder}: {port}");
            }
        }
    }
}

/// `kubectl apply` undoes changes of the objects that it is given.
#[test]
fn second_apply_undoes_no_command_of_the_comments() {
    for folder in [ONE, THREE] {
        let objects = build(repository(), folder);
        let built: BTreeSet<_> = objects.iter().map(identity).collect();
        for secret in secrets(folder).into_keys() {
            assert!(!built.contains(&("Secret".to_owned(), secret)));
        }
        // Files that are applied on their own must not change what the folder has.
        for file in fs::read_dir(repository().join(folder)).expect("it exists") {
            let file = file.expect("a file").path();
            if file.is_dir() || file.ends_with("kustomization.yaml") {
                continue;
            }
            let kustomization = read(repository().join(folder).join("kustomization.yaml"));
            let name = file.file_name().expect("a file").to_string_lossy();
            let lines = [format!("  - {name}\n"), format!("  - path: {name}\n")];
            let is_part = lines.iter().any(|line| kustomization.contains(line));
            for object in documents(&read(&file)) {
                let is_built = built.contains(&identity(&object));
                assert_eq!(is_built, is_part, "{}: {object}", file.display());
            }
        }
    }
}

#[test]
fn pods_start_with_service_accounts() {
    let etcd = Etcd::start();
    let mut cluster = Cluster::new(&etcd);
    // Nobody listens there: the keys are fetched later.
    cluster.hosts.push((
        "https://kubernetes.default.svc/".to_owned(),
        "https://127.0.0.1:9/".to_owned(),
    ));
    let root = with_service_accounts();
    let objects = build(root.path(), ONE);
    let mut pod = cluster.start(&objects, "deploy/kubernetes/service-accounts", 0);
    assert_eq!(cluster.call(&pod, "/v1/templates", &[]).status, 401);
    let output = pod.process.output().join("\n");
    assert!(!output.contains("no flag has the variable"), "{output}");
}

const LEASES: &str = "/v1/resources/db/leases";
const TEMPLATE: &str = "/v1/templates/db";
const JSON: &str = "content-type: application/json";

/// Adds a template and a lease.
fn add_state(cluster: &Cluster, pod: &Pod, operator: &str) {
    let body = r#"{"capacity": 50, "algorithm": {"kind": "FAIR_SHARE", "lease_length": 300}}"#;
    let put = ["-X", "PUT", "-H", operator, "-H", JSON, "-d", body];
    let created = cluster.call(pod, TEMPLATE, &put);
    assert_eq!(created.status, 201, "{}", created.body);
    let token = cluster
        .shell(&command("doorman token "))
        .expect("there is a secret");
    let service = format!("Authorization: Bearer {}", token.trim());
    let lease = json!({"client_id": "orders-1", "resources": [{"resource_id": "db", "wants": 30}]});
    let lease = lease.to_string();
    let post = ["-H", &service, "-H", JSON, "-d", &lease];
    let leased = cluster.call(pod, "/v1/capacity", &post);
    assert!(leased.body.contains(r#""capacity":30"#), "{}", leased.body);
}

/// One server, the same one again, three servers, and a master that stops: the document and the
/// leases stay.
#[test]
fn pods_keep_their_state_when_manifests_are_applied_again() {
    let etcd = Etcd::start();
    let cluster = Cluster::new(&etcd);
    let operator = cluster.token("--scope templates:write,templates:read,status:read");
    let has_state = |pod: &Pod| {
        let template = cluster.call(pod, TEMPLATE, &["-H", &operator]);
        let leases = cluster.call(pod, LEASES, &["-H", &operator]);
        template.body.contains(r#""capacity":50"#) && leases.body.contains(r#""has":30"#)
    };
    let one = build(repository(), ONE);
    let pod = cluster.start(&one, ONE, 0);
    add_state(&cluster, &pod, &operator);
    assert!(has_state(&pod));
    let metrics = curl(&[&format!("http://{}:9300/metrics", pod.address)]);
    assert_eq!(metrics.status, 200);
    pod.stop();

    let again = cluster.shell(&command("(umask "));
    again.expect_err("tokens signed with the first secret would end");
    let pod = cluster.start(&one, ONE, 0);
    assert!(has_state(&pod));
    pod.stop();

    let three = build(repository(), THREE);
    let first = cluster.start(&three, THREE, 0);
    until("the first of three has the state of the one", || {
        has_state(&first)
    });
    let others = [1, 2].map(|ordinal| cluster.start(&three, THREE, ordinal));
    first.stop();
    until("another one has the state", || others.iter().any(has_state));
}
