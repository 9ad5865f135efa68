//! Reads of an operator.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Instant,
};

use doorman_bench::Connection;
use doorman_openapi::ResourcePage;

/// A connection whose requests carry one token.
#[derive(Debug)]
pub(crate) struct Reader {
    connection: Connection,
    token: String,
}

impl Reader {
    pub(crate) fn open(server: SocketAddr, token: &str) -> io::Result<Self> {
        Ok(Self {
            connection: Connection::open(server)?,
            token: token.to_owned(),
        })
    }

    /// The body of a successful response.
    fn get(&mut self, path: &str) -> io::Result<&[u8]> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\n\r\n",
            self.token
        );
        self.connection.exchange(request.as_bytes())
    }
}

/// Reads of a constant reader.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReadCounts {
    pub(crate) pages: usize,
    /// Reads of all pages, the status and the metrics.
    pub(crate) walks: usize,
}

/// The longest latency of several reads, in milliseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "measures elapsed time, not a lease"
)]
pub(crate) fn max_latency(reader: &mut Reader, path: &str, times: usize) -> io::Result<f64> {
    let mut longest = 0.0_f64;
    for _ in 0..times {
        let started = Instant::now();
        reader.get(path)?;
        longest = longest.max(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(longest)
}

/// Returns the number of resources on a page, and the cursor of the next page.
pub(crate) fn read_page(reader: &mut Reader, path: &str) -> io::Result<(usize, Option<String>)> {
    let page: ResourcePage = serde_json::from_slice(reader.get(path)?)?;
    Ok((page.resources.len(), page.next_cursor))
}

/// Reads all pages, the status and the metrics repeatedly until `stop` is set.
pub(crate) fn read_until(reader: &mut Reader, stop: &AtomicBool) -> io::Result<ReadCounts> {
    let mut counts = ReadCounts::default();
    loop {
        let mut cursor = Some(String::new());
        while let Some(from) = cursor {
            if stop.load(Relaxed) {
                return Ok(counts);
            }
            let page = reader.get(&format!("/v1/resources?limit=1000&cursor={from}"))?;
            cursor = find_next_cursor(page);
            counts.pages += 1;
        }
        reader.get("/v1/status")?;
        reader.get("/metrics")?;
        counts.walks += 1;
    }
}

/// Searches the end of a page for its cursor. A full parse would take CPU time from the clients.
fn find_next_cursor(page: &[u8]) -> Option<String> {
    let text = str::from_utf8(page).ok()?;
    let (_, cursor) = text.rsplit_once(r#""next_cursor":""#)?;
    Some(cursor.split('"').next()?.to_owned())
}
