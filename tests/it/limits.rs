//! The rate limit of callers, on a real server.

use std::process::Command;

use tempfile::TempDir;

use crate::support::{Process, curl, doorman};

/// Starts a server with these flags.
fn start(flags: &[&str]) -> (Process, String, TempDir) {
    let home = TempDir::new().expect("a temporary directory");
    let data = home.path().join("data").display().to_string();
    let mut args = vec!["--listen", "127.0.0.1:0", "--data-dir", &data];
    args.extend(flags);
    let mut process = Process::start(&doorman(), &args);
    let address = process.wait_for_address();
    (process, address, home)
}

/// Requests a lease; returns the status and `Retry-After`.
fn lease(address: &str, client: &str) -> (u16, Option<u64>) {
    let body =
        format!(r#"{{"client_id":"{client}","resources":[{{"resource_id":"db","wants":1}}]}}"#);
    let url = format!("{address}/v1/capacity");
    let json = "content-type: application/json";
    let response = curl(&[&url, "-H", json, "-d", &body]);
    let retry_after = response.headers.lines().find_map(|line| {
        let line = line.to_ascii_lowercase();
        line.strip_prefix("retry-after:")?.trim().parse().ok()
    });
    (response.status, retry_after)
}

#[test]
fn configured_rate_limits_loopback_callers_but_not_renewals() {
    // A new lease costs nine tokens, which refill in nine seconds. A rejection costs a quarter.
    let (_process, address, _home) = start(&["--caller-rate", "1", "--caller-burst", "100"]);
    assert_eq!(lease(&address, "holder").0, 200);
    let mut newcomers = 0;
    let retry_after = loop {
        let (status, retry_after) = lease(&address, &format!("new-{newcomers}"));
        if status == 429 {
            break retry_after;
        }
        newcomers += 1;
        assert!(newcomers < 20, "no rejection");
    };
    assert!(
        retry_after.is_some_and(|seconds| (1..=12).contains(&seconds)),
        "{retry_after:?}"
    );
    assert_eq!(lease(&address, "holder").0, 200);
    assert_eq!(curl(&[&format!("{address}/livez")]).status, 200);
}

#[test]
fn commands_retry_after_a_rate_limit() {
    // A new lease costs nine tokens, so the second one has to wait for a second or two.
    let (_process, address, _home) = start(&["--caller-rate", "9", "--caller-burst", "9"]);
    for client in ["shop-1", "shop-2"] {
        let output = Command::new(doorman())
            .args(["get", "db", "--wants", "5", "--client", client])
            .args(["--server", &address])
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{output:?}");
    }
}
