//! How much one caller may ask for, of a real server over real sockets.

use std::process::Command;

use tempfile::TempDir;

use crate::support::{Process, curl, doorman};

/// A server with these flags, and its address.
fn start(flags: &[&str]) -> (Process, String, TempDir) {
    let home = TempDir::new().expect("a folder for temporary files");
    let data = home.path().join("data").display().to_string();
    let mut args = vec!["--listen", "127.0.0.1:0", "--data-dir", &data];
    args.extend(flags);
    let mut process = Process::start(&doorman(), &args);
    let address = process.wait_for_address();
    (process, address, home)
}

fn lease(address: &str, client: &str) -> (u16, Option<u64>) {
    let body =
        format!(r#"{{"client_id":"{client}","resources":[{{"resource_id":"db","wants":1}}]}}"#);
    let url = format!("{address}/v1/capacity");
    let json = "content-type: application/json";
    let answer = curl(&[&url, "-H", json, "-d", &body]);
    let told = answer.headers.lines().find_map(|line| {
        let line = line.to_ascii_lowercase();
        line.strip_prefix("retry-after:")?.trim().parse().ok()
    });
    (answer.status, told)
}

#[test]
fn a_limit_that_is_asked_for_counts_on_loopback_and_renewals_go_on() {
    // A lease costs nine, which come back in nine seconds, and to be refused a quarter of that.
    let (_process, address, _home) = start(&["--caller-rate", "1", "--caller-burst", "100"]);
    assert_eq!(lease(&address, "kept").0, 200);
    let mut newcomers = 0;
    let told = loop {
        let (status, told) = lease(&address, &format!("new-{newcomers}"));
        if status == 429 {
            break told;
        }
        newcomers += 1;
        assert!(newcomers < 20, "nothing limits it");
    };
    assert!(
        told.is_some_and(|seconds| (1..=12).contains(&seconds)),
        "{told:?}"
    );
    assert_eq!(lease(&address, "kept").0, 200);
    assert_eq!(curl(&[&format!("{address}/livez")]).status, 200);
}

#[test]
fn the_commands_wait_as_they_are_told() {
    // A lease costs nine: the second has to wait for a second or two.
    let (_process, address, _home) = start(&["--caller-rate", "9", "--caller-burst", "9"]);
    for client in ["shop-1", "shop-2"] {
        let mut command = Command::new(doorman());
        let command = command.args(["get", "db", "--wants", "5", "--client", client]);
        let output = command.args(["--server", &address]).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{output:?}");
    }
}
