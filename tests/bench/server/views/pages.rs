//! Those who look: pages, one after the other.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Instant,
};

use doorman_openapi::ResourcePage;

use crate::connection::Connection;

/// What a reader has seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) pages: usize,
    pub(crate) walks: usize,
}

/// How long it takes to be answered, in milliseconds: the longest of so many times.
#[expect(
    clippy::disallowed_methods,
    reason = "a stretch of work is measured, not the length of a lease"
)]
pub(crate) fn longest(connection: &mut Connection, path: &str, times: usize) -> io::Result<f64> {
    let mut longest = 0.0_f64;
    for _ in 0..times {
        let began = Instant::now();
        connection.get(path)?;
        longest = longest.max(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(longest)
}

/// Reads a page, whole; how many resources it has, and where the next one begins.
pub(crate) fn read(connection: &mut Connection, path: &str) -> io::Result<(usize, Option<String>)> {
    let page: ResourcePage = serde_json::from_slice(connection.get(path)?)?;
    Ok((page.resources.len(), page.next_cursor))
}

/// Reads all pages, the status and the metrics, again and again until it is told to stop.
pub(crate) fn read_until(connection: &mut Connection, stop: &AtomicBool) -> io::Result<Seen> {
    let mut seen = Seen::default();
    loop {
        let mut cursor = Some(String::new());
        while let Some(from) = cursor {
            if stop.load(Relaxed) {
                return Ok(seen);
            }
            let page = connection.get(&format!("/v1/resources?limit=1000&cursor={from}"))?;
            cursor = next_cursor(page);
            seen.pages += 1;
        }
        connection.get("/v1/status")?;
        connection.get("/metrics")?;
        seen.walks += 1;
    }
}

/// Where the next page begins, found at the end of this one: a reader that takes the page apart would take the processor from those that
/// are measured.
fn next_cursor(page: &[u8]) -> Option<String> {
    let text = str::from_utf8(page).ok()?;
    let (_, cursor) = text.rsplit_once(r#""next_cursor":""#)?;
    Some(cursor.split('"').next()?.to_owned())
}
