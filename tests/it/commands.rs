//! Commands for operators, as programs: the live view, tokens, completions and manual pages.

use std::{
    fs::{self, Metadata},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::support::{ControlPlane, DOCUMENT, Process, doorman};

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(doorman());
    command.args(args).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn errors_name_the_variable_of_a_flag() {
    let run = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(doorman());
        let command = command.args(args).envs(variables.iter().copied());
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        text(&output.stderr)
    };
    for (args, name, value) in [
        (&["agent"][..], "DOORMAN_LISTEN", ""),
        (&["agent"], "DOORMAN_SERVICE", ""),
        (&["agent"], "DOORMAN_INSTANCE", ""),
        (&["agent"], "DOORMAN_RULES", ""),
        (&["agent"], "DOORMAN_MAX_KEYS", "many"),
        (&["agent"], "DOORMAN_REQUEST_ID_HEADER", ""),
        (&["agent"], "DOORMAN_SERVER", "http://a:1,b"),
        (&["agent", "--log-format", "text"], "DOORMAN_LOG_FORMAT", ""),
        (&[], "DOORMAN_MAX_LEASES", ""),
        (&[], "DOORMAN_SERVER_ID", ""),
        (&[], "DOORMAN_DATA_DIR", ""),
        (&[], "DOORMAN_AUTH_AUDIENCE", ""),
        (&["simulate"], "DOORMAN_SIMULATE_CONFIG", ""),
        (&["get", "db", "--wants", "1"], "DOORMAN_CLIENT", ""),
    ] {
        let message = run(args, &[(name, value)]);
        assert!(message.contains(&format!(" ({name})")), "{name}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    // The flag counts.
    let message = run(&["agent", "--max-keys=0"], &[("DOORMAN_MAX_KEYS", "1")]);
    assert!(!message.contains("DOORMAN_MAX_KEYS"), "{message}");
}

#[test]
fn watch_shows_the_state_again_and_again() {
    let server = ControlPlane::start(DOCUMENT);
    let lease = |client: &str| {
        let resource = r#"{"resource_id":"api","wants":5}"#;
        let body = format!(r#"{{"client_id":"{client}","resources":[{resource}]}}"#);
        server.post("/v1/capacity", &body);
    };
    let command = format!(
        "exec {} show --watch=0.1 --server {} 2>/dev/null",
        doorman().display(),
        server.address()
    );
    let mut watch = Process::start(Path::new("sh"), &["-c", &command]);
    // Notes are on standard output, too: the next state replaces them.
    for _ in 0..2 {
        watch.wait_for(|line| (line == "no resources").then_some(()));
    }
    lease("a");
    let row = |wants: &str| format!("api\t1000\t{wants}\t{wants}\t");
    watch.wait_for(|line| line.starts_with(&row("5")).then_some(()));
    lease("b");
    watch.wait_for(|line| line.starts_with(&row("10")).then_some(()));
    // A restart of the server does not end it.
    let stopped = server.stop();
    watch.wait_for(|line| line.contains("no response from").then_some(()));
    let _server = stopped.restart();
    watch.wait_for(|line| line.starts_with("api\t").then_some(()));
}

/// The document, the notes and the file modes of a server with a document from a file.
#[test]
fn empty_results_and_file_sources_are_explained() {
    let mut server = ControlPlane::start(DOCUMENT);
    let address = server.address().to_owned();
    let noted = |line: &str| {
        let args: Vec<_> = line.split(' ').chain(["--server", &address]).collect();
        let output = run(&args);
        assert!(output.status.success(), "{output:?}");
        (text(&output.stdout), text(&output.stderr))
    };
    let nothing = String::new;
    let (table, note) = noted("show");
    assert!(table.starts_with("RESOURCE\tCAPACITY\t"), "{table}");
    assert_eq!((table.lines().count(), &*note), (1, "no resources\n"));
    let (changes, note) = noted("history");
    assert_eq!(changes, "REVISION\tCHANGED\tBY\tCHANGE\n");
    assert!(
        note.starts_with("no history: the document comes from a file"),
        "{note}"
    );
    let (released, note) = noted("release api");
    assert_eq!(released, "");
    assert!(
        note.starts_with("nothing to release: doorman-cli@"),
        "{note}"
    );
    noted("get api --wants 5 --client a");
    let (_, note) = noted("show api --client b");
    assert_eq!(note, "b holds no lease of api, and does not wait for one\n");
    let released = noted("release api --client a");
    assert_eq!(released, ("released 1 lease of a\n".to_owned(), nothing()));

    let file = server.home().join("limits.yaml");
    let rejected = server.put("/v1/templates", r#"{"resources":[]}"#);
    assert_eq!(rejected.status, 409, "{rejected:?}");
    let source = format!("it comes from file:{}; change it there", file.display());
    assert!(rejected.body.contains(&source), "{rejected:?}");

    let document = fs::read_to_string(&file).expect("it exists");
    fs::write(&file, document.replace("1000", "1001")).expect("it is writable");
    let changes = "document reloaded: template \"api\": capacity: 1000 → 1001";
    server.wait_for(|line| line.contains(changes).then_some(()));

    let data = server.home().join("data");
    assert_eq!(mode(&fs::metadata(&data).expect("it exists")), 0o700);
    for entry in fs::read_dir(&data).expect("it exists") {
        let path = entry.expect("it is readable").path();
        // The server is still writing: a new file is renamed once it is complete.
        if let Ok(metadata) = fs::metadata(&path) {
            assert_eq!(mode(&metadata), 0o600, "{}", path.display());
        }
    }
}

#[test]
fn change_that_blocks_clients_warns_as_its_dry_run() {
    let home = TempDir::new().expect("a temporary directory");
    let store = home.path().join("doorman.db");
    let server = ControlPlane::start_on(home, &store);
    let file = server.home().join("blocked.yaml");
    let document = "resources: [{identifier_glob: '*', capacity: 0, algorithm: {kind: STATIC}}]";
    fs::write(&file, document).expect("the directory is writable");
    let file = file.display().to_string();
    let with_server = |args: &[&str]| run(&[args, &["--server", server.address()]].concat());
    let blocks = "warning: live resources that become blocked: 1; leases of their clients: 1\n";
    for command in [["set", "*", "capacity=0"].as_slice(), &["import", &file]] {
        with_server(&["get", "api", "--wants", "5"]);
        for flags in [["--dry-run"].as_slice(), &[]] {
            let changed = with_server(&[command, flags].concat());
            assert!(changed.status.success(), "{changed:?}");
            assert_eq!(text(&changed.stderr), blocks, "{command:?} {flags:?}");
        }
        let back = with_server(&["set", "*", "capacity=1000"]);
        assert_eq!(text(&back.stderr), "");
    }
}

fn mode(metadata: &Metadata) -> u32 {
    metadata.permissions().mode() & 0o777
}

#[test]
fn token_warns_that_it_releases_leases_of_others() {
    let home = TempDir::new().expect("a temporary directory");
    let secret = home.path().join("secret");
    fs::write(&secret, [b's'; 32]).expect("the directory is new");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("it exists");
    let secret = secret.display().to_string();
    for (more, warns) in [
        (&["--scope", "capacity"][..], true),
        (&["--scope", "capacity", "--resources", "db"], true),
        (&["--scope", "capacity", "--client-id", "orders*"], false),
        (&["--scope", "server"], true),
        (&["--scope", "status:read"], false),
    ] {
        let args = ["token", "--secret-file", &secret, "--sub", "orders"];
        let created = run(&[&args[..], more].concat());
        let warning = text(&created.stderr);
        assert_eq!(
            warning.contains("release the leases of others"),
            warns,
            "{warning}"
        );
        assert_eq!(warning.is_empty(), !warns, "{warning}");
    }
}

#[test]
fn names_with_hidden_characters_are_shown_escaped() {
    let server = ControlPlane::start(DOCUMENT);
    let address = server.address().to_owned();
    let server = ["--server", &address];
    let id = "api\u{202e}gpj\u{e0041}";
    let get = ["get", id, "--wants", "5", "--client", "a\u{2028}b"];
    let commands: [&[&str]; 6] = [
        &get,
        &[&get[..], &["--json"]].concat(),
        &["show"],
        &["show", "--json"],
        &["show", id],
        &["show", id, "--json"],
    ];
    for command in commands {
        let output = run(&[command, &server].concat());
        assert!(output.status.success(), "{output:?}");
        let shown = text(&output.stdout);
        assert!(shown.is_ascii(), "{command:?}: {shown}");
        assert!(shown.contains(r"api\u202egpj\udb40\udc41"), "{shown}");
    }
    let missing = run(&[&["show", "none\u{202e}"], &server[..]].concat());
    let message = text(&missing.stderr);
    assert!(message.contains(r"none\u202e"), "{message}");
    assert!(message.is_ascii(), "{message}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn token_inspect_names_the_failed_check() {
    let home = TempDir::new().expect("a temporary directory");
    let path = |name: &str| home.path().join(name).display().to_string();
    for (name, byte) in [("secret", b's'), ("other", b'o')] {
        fs::write(path(name), [byte; 32]).expect("the directory is new");
        let private = fs::Permissions::from_mode(if name == "secret" { 0o600 } else { 0o604 });
        fs::set_permissions(path(name), private).expect("it exists");
    }
    let create = |secret: &str, more: &[&str]| {
        let is_private = secret == "secret";
        let secret = path(secret);
        let mut args = vec!["token", "--secret-file", &secret, "--sub", "orders"];
        args.extend(["--scope", "capacity", "--client-id", "orders*"]);
        args.extend(more);
        let created = run(&args);
        assert!(created.status.success(), "{created:?}");
        let warning = text(&created.stderr);
        assert_eq!(warning.is_empty(), is_private, "{warning}");
        assert!(is_private || warning.contains("can read"), "{warning}");
        fs::write(path("token"), &created.stdout).expect("it is writable");
        text(&created.stdout).trim().to_owned()
    };
    let (file, secret) = (path("token"), path("secret"));
    let inspect = |more: &[&str]| run(&[&["token", "inspect", &file][..], more].concat());
    let verified = ["--auth-secret-file", &secret];
    for (signed_with, more, check) in [
        ("secret", &[][..], None),
        ("other", &[], Some("signature")),
        ("secret", &["--audience", "billing"], Some("audience")),
        ("secret", &["--issuer", "somebody"], Some("issuer")),
    ] {
        let token = create(signed_with, more);
        let read = inspect(&[]);
        let shown = text(&read.stdout);
        assert!(read.status.success(), "{read:?}");
        for part in ["alg", "HS256", "orders", "Z, in ", "not checked"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        let output = inspect(&verified);
        let (shown, stderr) = (text(&output.stdout), text(&output.stderr));
        match check {
            None => {
                assert_eq!(output.status.code(), Some(0), "{stderr}");
                assert!(shown.contains("accepted; scopes: capacity"), "{shown}");
            }
            Some(check) => {
                assert_eq!(output.status.code(), Some(1), "{shown}");
                let expected = format!("doorman: token rejected ({check}): ");
                assert!(stderr.starts_with(&expected), "{stderr}");
                assert_eq!(stderr.lines().count(), 1, "{stderr}");
            }
        }
        let json = inspect(&[&verified[..], &["--json"]].concat());
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
        assert_eq!(json["accepted"], check.is_none(), "{json}");
        assert_eq!(json["failed_check"], serde_json::json!(check), "{json}");
        assert_eq!(json["claims"]["sub"], "orders", "{json}");
        let (_, signature) = token.rsplit_once('.').expect("three parts");
        assert!(!shown.contains(signature) && !stderr.contains(signature));
    }
    fs::write(&file, "no token").expect("it is writable");
    let output = inspect(&[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("(malformed)"), "{output:?}");
}

#[test]
fn show_marks_processes_of_one_client_and_release_ends_their_leases() {
    let server = ControlPlane::start(DOCUMENT);
    for (run, seq) in [(1, 9), (2, 1)] {
        let resource = r#"{"resource_id":"api","wants":1000}"#;
        let body =
            format!(r#"{{"client_id":"a","run":{run},"seq":{seq},"resources":[{resource}]}}"#);
        server.post("/v1/capacity", &body);
    }
    let run = |args: &[&str]| {
        let output = run(&[args, &["--server", server.address()]].concat());
        text(&output.stdout)
    };
    let shown = run(&["show", "--client", "a"]);
    for row in ["a (duplicate, run 1)\tapi", "a (duplicate, run 2)\tapi"] {
        assert!(shown.contains(row), "{shown}");
    }
    assert_eq!(
        run(&["release", "--client", "a"]),
        "released 2 leases of a\n"
    );
    assert_eq!(run(&["show", "api"]).matches("duplicate").count(), 0);
}

#[test]
fn commands_warn_of_a_document_that_ends_limits() {
    let home = TempDir::new().expect("a temporary directory");
    let store = home.path().join("limits.db");
    let server = ControlPlane::start_on(home, &store);
    let resource = r#"{"resource_id":"api","wants":5}"#;
    let body = format!(r#"{{"client_id":"a","resources":[{resource}]}}"#);
    server.post("/v1/capacity", &body);
    let files = TempDir::new().expect("a temporary directory");
    let file = |name: &str, text: &str| {
        let file = files.path().join(name);
        fs::write(&file, text).expect("it is writable");
        file.display().to_string()
    };
    let empty = file("empty.yaml", "resources: []\n");
    let some = file(
        "some.yaml",
        "resources: [{identifier_glob: '*', capacity: 1, algorithm: {kind: STATIC}}]\n",
    );
    let path = files.path().join("doorman.db").display().to_string();
    let warned = |args: &[&str]| {
        let output = run(args);
        assert!(output.status.success(), "{output:?}");
        let lines = text(&output.stderr);
        let lines = lines.lines().map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let unlimited = "resources: has no template for \"*\": resources that match no template are \
        unlimited, or blocked with `--unmatched refuse`";
    let in_file = format!("warning: {empty}:1:12: {unlimited}");
    let importing = |more: &[&str]| warned(&[&["import", &empty][..], more].concat());
    let on_server = ["--server", server.address()];
    let in_store = ["--store", &path];
    assert_eq!(warned(&["check", &empty]), [&*in_file]);
    assert_eq!(importing(&in_store), [&*in_file]);
    let lost = "warning: live resources that become unlimited: 1; leases of their clients: 1";
    let dry_run = importing(&[&on_server[..], &["--dry-run"]].concat());
    assert_eq!(dry_run, [&*in_file, lost]);
    assert_eq!(importing(&on_server), [&*in_file, lost]);
    let of_document = format!("warning: {unlimited}");
    for (location, revision, expected) in [
        (on_server, "2", &[&*of_document, lost][..]),
        (in_store, "1", &[&*of_document]),
    ] {
        let import = [&["import", &some][..], &location].concat();
        assert_eq!(warned(&import), [""; 0]);
        let rollback = [&["rollback", revision][..], &location].concat();
        assert_eq!(warned(&rollback), expected);
    }
}

#[test]
fn completions_and_manual_pages_cover_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        let script = text(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        for word in ["show", "watch", "import", "auth-secret-file"] {
            assert!(script.contains(word), "{word} for {shell}");
        }
    }
    let home = TempDir::new().expect("a temporary directory");
    let pages = home.path().join("man");
    let output = run(&["man", &pages.display().to_string()]);
    assert!(output.status.success(), "{output:?}");
    let page = |name: &str| fs::read_to_string(pages.join(name)).expect(name);
    assert!(page("doorman.1").starts_with(".ie"), "roff");
    assert!(page("doorman-show.1").contains("\\-\\-prefix"));
    assert!(page("doorman-token-inspect.1").contains("auth\\-secret\\-file"));
    assert!(Path::new(&pages).join("doorman-serve.1").exists());
}
