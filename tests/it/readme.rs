//! The operator's part of the README, pasted line by line.
//!
//! Its commands use fixed ports, so that the shell gets a network of its own, as root or in a user namespace. Where neither is allowed, as in
//! most containers, it uses the network that is there: the ports must then be free. It is never skipped. Of the fresh machine, one thing is
//! not fresh: cargo has built already, and so does nothing.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::support::{PATIENCE, doorman};

/// Said by the shell after each line, with what became of it.
const DONE: &str = "became of it:";

/// The ports that the commands use.
const PORTS: [u16; 3] = [7300, 7301, 8080];

/// Ways to begin a shell, the better first: with a network of its own, its loopback up, in which processes end with the shell.
const BEGINNINGS: [&[&str]; 3] = [
    &["unshare", "--net", "--pid", "--fork", "--kill-child"],
    &[
        "unshare",
        "--map-root-user",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
    ],
    &["env", "NETWORK=shared"],
];

/// Says once that the shell can be used, which it cannot where a network of its own stays down.
const BEGIN: &str =
    r#"[ "$NETWORK" ] || ip link set lo up && echo "up ${NETWORK:-alone}" && exec bash 2>&1"#;

/// A shell in an empty home, that says how each line ends.
struct Shell {
    process: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    _home: TempDir,
}

impl Shell {
    /// Begins in what stands for a clone of the repository.
    fn begin() -> Self {
        let mut begun = BEGINNINGS.iter().filter_map(|it| Self::begin_by(it));
        begun.next().expect("there is a shell")
    }

    fn begin_by(way: &[&str]) -> Option<Self> {
        let home = TempDir::new().expect("a folder for temporary files");
        let clone = home.path().join("clone");
        fs::create_dir_all(clone.join("target")).expect("the folder is new");
        let built = doorman();
        let built = built.parent().expect("programs lie in a folder");
        symlink(built, clone.join("target/release")).expect("the folder is new");
        let bin = home.path().join("bin");
        fs::create_dir(&bin).expect("the folder is new");
        let cargo = bin.join("cargo");
        fs::write(&cargo, "#!/bin/sh\n").expect("the folder is new");
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("it is ours");

        let path = std::env::var("PATH").expect("tests have a path");
        let (program, args) = way.split_first().expect("each names a program");
        // What it begins belongs to its group, and so ends with it.
        let mut shell = Command::new(program);
        shell
            .args(args)
            .args(["sh", "-c", BEGIN])
            .process_group(0)
            .current_dir(&clone)
            .env("HOME", home.path())
            .env("PATH", format!("{}:{path}", bin.display()))
            .env_remove("NETWORK")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = shell.spawn().ok()?;
        let stdin = process.stdin.take()?;
        let stdout = process.stdout.take()?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                drop(sender.send(line));
            }
        });
        let shell = Self {
            process,
            stdin,
            lines,
            _home: home,
        };
        let up = shell.lines.recv_timeout(PATIENCE).ok()?;
        if up == "up shared" {
            for port in PORTS {
                let free = TcpListener::bind(("127.0.0.1", port));
                free.unwrap_or_else(|error| {
                    panic!("no network of its own is to be had here, and port {port} of this machine is not free: {error}")
                });
            }
        }
        Some(shell)
    }

    /// Pastes a line, and waits until it is done, well. Returns what was said meanwhile.
    fn paste(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}\nprintf '\\n{DONE} %s\\n' $?").expect("it reads");
        let mut said = String::new();
        loop {
            let Ok(more) = self.lines.recv_timeout(PATIENCE) else {
                panic!("{line}\nnever ends; it said:\n{said}");
            };
            if let Some(became) = more.strip_prefix(DONE) {
                assert_eq!(became.trim(), "0", "{line}\nsaid:\n{said}");
                return said;
            }
            said.push_str(&more);
            said.push('\n');
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.process);
        // It may have ended already.
        kill_process_group(group, Signal::KILL).unwrap_or_default();
        drop(self.process.wait());
    }
}

/// The commands of the README between two of its headings. One that goes on in the next line is pasted with it.
fn commands(from: &str, to: &str) -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(readme).expect("it is there");
    let (_, part) = readme.split_once(from).expect("the heading is there");
    let (part, _) = part.split_once(to).expect("the heading is there");
    let blocks = part.split("```sh\n").skip(1);
    let blocks = blocks.map(|it| it.split_once("```").expect("blocks end").0);
    let mut commands = vec![String::new()];
    for line in blocks.flat_map(str::lines) {
        let command = commands.last_mut().expect("there is one");
        command.push_str(line);
        if line.ends_with('\\') {
            command.push('\n');
        } else {
            commands.push(String::new());
        }
    }
    commands.pop();
    commands
}

#[test]
fn the_readme_pasted_line_by_line_brings_a_changed_limit_a_token_and_a_certificate() {
    let operators = commands("\n## Run the control plane\n", "\n### ");
    let with_tokens = commands("\n### Who may do what\n", "\n### ");
    let with_certificate = commands("\n### TLS\n", "\n### ");
    assert!(operators.len() >= 12, "{operators:#?}");
    assert!(with_tokens.len() >= 6, "{with_tokens:#?}");
    assert!(with_certificate.len() >= 5, "{with_certificate:#?}");
    let mut shell = Shell::begin();
    let said: Vec<_> = operators.iter().map(|it| shell.paste(it)).collect();
    let said_to = |what: &str| {
        let at = operators.iter().position(|it| it.contains(what));
        &*said[at.unwrap_or_else(|| panic!("no {what} in {operators:#?}"))]
    };
    let before = said_to("q=1000;");
    assert!(
        before.contains("ratelimit-policy: \"api\";q=1000;"),
        "{before}"
    );
    let view = said_to("/v1/resources/api");
    assert!(view.contains(r#""capacity":20.0"#), "{view}");
    let after = said_to("q=20;");
    assert!(after.contains("ratelimit-policy: \"api\";q=20;"), "{after}");
    let load = said_to("for i in");
    assert!(load.contains("200 ") && load.contains("429 "), "{load}");

    let said: Vec<_> = with_tokens.iter().map(|it| shell.paste(it)).collect();
    let leased = said.last().expect("there are some");
    assert!(leased.contains("db") && leased.contains('5'), "{said:#?}");

    let said: Vec<_> = with_certificate.iter().map(|it| shell.paste(it)).collect();
    let leased = said
        .iter()
        .flat_map(|it| it.lines())
        .any(|it| it.starts_with("db") && it.contains("granted"));
    assert!(leased, "{said:#?}");
    let discovered = said.last().expect("there are some");
    assert!(discovered.contains("https://127.0.0.1:7301"), "{said:#?}");
}
