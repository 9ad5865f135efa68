//! The commands of the README and of every guide, pasted line by line into a shell.
//!
//! They use fixed ports, so the shell gets a network namespace, as root or in a user namespace.
//! Where neither is allowed, as in most containers, it uses the machine's network, and the ports
//! must be free. `cargo` is a stub: the programs are built already.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver},
    },
    thread,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::support::{TIMEOUT, doorman, repository};

/// Printed by the shell after each command, followed by its exit status.
const STATUS: &str = "exit status:";

/// The ports that the commands use.
const PORTS: [u16; 8] = [7300, 7301, 7310, 7320, 7330, 8080, 12379, 12380];

/// Ways to start a shell, preferred first. With a namespace, processes end with the shell.
const LAUNCHERS: [&[&str]; 3] = [
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

/// Reports that the shell is usable. It is not where the namespace's loopback stays down.
const INIT: &str =
    r#"[ "$NETWORK" ] || ip link set lo up && echo "up ${NETWORK:-alone}" && exec bash 2>&1"#;

/// One shell at a time: without a namespace they share the ports.
static SHELL: Mutex<()> = Mutex::new(());

/// The guides expect a running control plane, and a client that holds a lease.
const RUNNING_SERVER: [&str; 4] = [
    r#"PATH="$PWD/target/release:$PATH""#,
    "doorman &",
    "until doorman ready; do sleep 1; done",
    "doorman get db --wants 5 --client orders-7",
];

/// A shell in an empty home directory, inside a stand-in for a clone of the repository.
struct Shell {
    process: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    _home: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Shell {
    fn start() -> Self {
        for launcher in LAUNCHERS {
            let turn = SHELL.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(shell) = Self::start_with(launcher, turn) {
                return shell;
            }
        }
        panic!("no shell can be started");
    }

    fn start_with(launcher: &[&str], turn: MutexGuard<'static, ()>) -> Option<Self> {
        let home = TempDir::new().expect("a temporary directory");
        let clone = home.path().join("clone");
        fs::create_dir_all(clone.join("target")).expect("the directory is new");
        let built = doorman();
        let built = built.parent().expect("programs lie in a directory");
        symlink(built, clone.join("target/release")).expect("the directory is new");
        let deploy = repository().join("deploy");
        symlink(deploy, clone.join("deploy")).expect("the directory is new");
        let bin = home.path().join("bin");
        fs::create_dir(&bin).expect("the directory is new");
        let cargo = bin.join("cargo");
        fs::write(&cargo, "#!/bin/sh\n").expect("the directory is new");
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("we own it");

        let path = std::env::var("PATH").expect("tests have a path");
        let (program, args) = launcher.split_first().expect("each names a program");
        let mut shell = Command::new(program);
        shell
            .args(args)
            .args(["sh", "-c", INIT])
            // Its background processes join its group, and are killed with it.
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
            _turn: turn,
        };
        let up = shell.lines.recv_timeout(TIMEOUT).ok()?;
        if up == "up shared" {
            for port in PORTS {
                let free = TcpListener::bind(("127.0.0.1", port));
                free.unwrap_or_else(|error| {
                    panic!("no network namespace available, and port {port} is not free: {error}")
                });
            }
        }
        Some(shell)
    }

    /// Runs a command to its successful end, and returns its output.
    fn run(&mut self, command: &str) -> String {
        writeln!(self.stdin, "{command}\nprintf '\\n{STATUS} %s\\n' $?").expect("it reads");
        let mut output = String::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(TIMEOUT) else {
                panic!("{command}\nnever ends; output:\n{output}");
            };
            if let Some(status) = line.strip_prefix(STATUS) {
                assert_eq!(status.trim(), "0", "{command}\noutput:\n{output}");
                return output;
            }
            output.push_str(&line);
            output.push('\n');
        }
    }

    fn run_all(&mut self, commands: &[String]) -> Vec<String> {
        commands.iter().map(|it| self.run(it)).collect()
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The commands of all `sh` blocks of a text. A command that continues in the next line is one.
fn commands(text: &str) -> Vec<String> {
    let blocks = text.split("```sh\n").skip(1);
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
fn readme_commands_bring_a_changed_limit_to_a_service() {
    let readme = read("README.md");
    // The commands before this heading build and run everything: CI runs them.
    let (_, readme) = readme
        .split_once("\n## Run the control plane\n")
        .expect("the heading exists");
    let commands = commands(readme);
    assert!(commands.len() >= 10, "{commands:#?}");
    let outputs = Shell::start().run_all(&commands);
    let output_of = |part: &str| {
        let at = commands.iter().position(|it| it.contains(part));
        &*outputs[at.unwrap_or_else(|| panic!("no {part} in {commands:#?}"))]
    };
    let before = output_of("q=1000;");
    assert!(
        before.contains("ratelimit-policy: \"api\";q=1000;"),
        "{before}"
    );
    let view = output_of("/v1/resources/api");
    assert!(view.contains(r#""capacity":20.0"#), "{view}");
    let after = output_of("q=20;");
    assert!(after.contains("ratelimit-policy: \"api\";q=20;"), "{after}");
    let load = output_of("for i in");
    assert!(load.contains("200 ") && load.contains("429 "), "{load}");
}

#[test]
fn every_command_of_the_guides_succeeds() {
    let mut guides: Vec<_> = fs::read_dir(root().join("docs"))
        .expect("the guides exist")
        .map(|it| it.expect("it can be listed").file_name())
        .filter_map(|it| it.into_string().ok())
        .filter(|it| it.ends_with(".md"))
        .collect();
    guides.sort();
    let mut executed = Vec::new();
    for guide in &guides {
        let commands = commands(&read(&format!("docs/{guide}")));
        if commands.is_empty() {
            continue;
        }
        let mut shell = Shell::start();
        // This guide starts its own servers.
        if guide == "AUTHENTICATION.md" {
            shell.run(RUNNING_SERVER[0]);
            let outputs = shell.run_all(&commands);
            let granted = |output: &&String| {
                let mut lines = output.lines();
                lines.any(|it| it.starts_with("db") && it.contains("granted"))
            };
            assert_eq!(outputs.iter().filter(granted).count(), 2, "{outputs:#?}");
            let discovery = outputs.last().expect("there are some");
            assert!(discovery.contains("https://127.0.0.1:7301"), "{discovery}");
        } else {
            for command in RUNNING_SERVER {
                shell.run(command);
            }
            shell.run_all(&commands);
        }
        executed.push((&**guide, commands.len()));
    }
    for (guide, at_least) in [
        ("AGENT.md", 3),
        ("AUTHENTICATION.md", 10),
        ("CONTROL_PLANE.md", 12),
        ("LEASES.md", 1),
        ("OPERATIONS.md", 8),
        ("RULES.md", 1),
    ] {
        let found = executed.iter().any(|&(it, n)| it == guide && n >= at_least);
        assert!(found, "{guide} in {executed:?}");
    }
}
