//! curl, as operators use it.

use std::process::Command;

use doorman_tests::connection::Response;

pub(crate) fn curl(args: &[&str]) -> Response {
    let output = Command::new("curl")
        .args(["-sS", "-i", "--max-time", "10"])
        .args(args)
        .output()
        .expect("curl is installed");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        output.status.success(),
        "curl {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (headers, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = headers
        .split_whitespace()
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status line");
    Response {
        status,
        headers: headers.to_owned(),
        body: body.to_owned(),
    }
}
