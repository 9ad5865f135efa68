//! The operator's part of the README, pasted line by line.
//!
//! Its commands use fixed ports, so that the shell gets a network of its own. Of the fresh machine, one thing is not fresh: cargo has built
//! already, and so does nothing.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
};

use tempfile::TempDir;

use crate::support::{PATIENCE, doorman};

/// Said by the shell after each line, with what became of it.
const DONE: &str = "became of it:";

/// A shell in an empty home, that says how each line ends.
struct Shell {
    process: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    _home: TempDir,
}

impl Shell {
    /// Begins in what stands for a clone of the repository; `None` where this process may not have a network of its own.
    fn begin() -> Option<Self> {
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
        // When it is killed, so are all that it has begun.
        let mut shell = Command::new("unshare");
        shell.args([
            "--map-root-user",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
        ]);
        shell.args(["sh", "-c", "ip link set lo up && echo up && exec bash 2>&1"]);
        shell
            .current_dir(&clone)
            .env("HOME", home.path())
            .env("PATH", format!("{}:{path}", bin.display()))
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
        (up == "up").then_some(shell)
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
        drop(self.process.kill());
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
fn the_readme_pasted_line_by_line_ends_with_a_changed_limit_and_a_token() {
    let operators = commands("\n## Run the control plane\n", "\n### ");
    let with_tokens = commands("\n### Who may do what\n", "\n### ");
    assert!(operators.len() >= 12, "{operators:#?}");
    assert!(with_tokens.len() >= 6, "{with_tokens:#?}");
    let Some(mut shell) = Shell::begin() else {
        skipped();
        return;
    };
    let said: Vec<_> = operators.iter().map(|it| shell.paste(it)).collect();
    let said_to = |what: &str| {
        let at = operators.iter().position(|it| it.contains(what));
        &*said[at.unwrap_or_else(|| panic!("no {what} in {operators:#?}"))]
    };
    let before = said_to("curl -si --retry");
    assert!(
        before.contains("\nratelimit-policy: \"api\";q=1000;"),
        "{before}"
    );
    let view = said_to("/v1/resources/api");
    assert!(view.contains(r#""capacity":20.0"#), "{view}");
    let after = said_to("until curl");
    assert!(after.contains("ratelimit-policy: \"api\";q=20;"), "{after}");
    let load = said_to("for i in");
    assert!(load.contains("200 ") && load.contains("429 "), "{load}");

    let said: Vec<_> = with_tokens.iter().map(|it| shell.paste(it)).collect();
    let leased = said.last().expect("there are some");
    assert!(leased.contains("db") && leased.contains('5'), "{said:#?}");
}

#[expect(
    clippy::print_stdout,
    reason = "who reads the tests' output should know"
)]
fn skipped() {
    println!("skipped, since there is no network of its own to be had here");
}
