//! Clients that each keep a poll open.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use doorman_openapi::paths;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::{Builder, Runtime},
    sync::Semaphore,
    time::{sleep, timeout},
};

/// Connections that are opened at a time: fewer than the accept queue holds.
const OPENING: usize = 64;

/// How long all polls are open before their memory is measured. The server parks them meanwhile.
const SETTLE: Duration = Duration::from_secs(3);

/// Open polls, until it is dropped.
#[derive(Debug)]
pub(crate) struct Polls {
    _runtime: Runtime,
}

impl Polls {
    /// Opens a poll for each client, and waits until all have been open for a while.
    pub(crate) fn open(server: SocketAddr, clients: &[String]) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let sent = Arc::new(AtomicUsize::new(0));
        let opening = Arc::new(Semaphore::new(OPENING));
        for (number, client) in clients.iter().enumerate() {
            // They are renewed at different times, as those of real clients.
            let wait = 30.0 + 30.0 * number as f64 / clients.len() as f64;
            let path = format!("{}?client_id={client}&wait={wait}", paths::HINTS);
            let (sent, opening) = (Arc::clone(&sent), Arc::clone(&opening));
            runtime.spawn(async move {
                let permit = opening.acquire_owned().await;
                let mut stream = TcpStream::connect(server).await?;
                send(&mut stream, &path, 0).await?;
                sent.fetch_add(1, Relaxed);
                drop(permit);
                let mut response = [0; 1024];
                loop {
                    // A response is one segment.
                    let len = stream.read(&mut response).await?;
                    let Some(text) = response.get(..len).filter(|text| !text.is_empty()) else {
                        break;
                    };
                    send(&mut stream, &path, confirmed(text)).await?;
                }
                sent.fetch_sub(1, Relaxed);
                io::Result::Ok(())
            });
        }
        let opened = async {
            while sent.load(Relaxed) < clients.len() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        runtime
            .block_on(async { timeout(Duration::from_secs(60), opened).await })
            .map_err(|_| io::Error::other("cannot open all polls; are enough files allowed?"))?;
        std::thread::sleep(SETTLE);
        if sent.load(Relaxed) < clients.len() {
            return Err(io::Error::other("the server closed polls"));
        }
        Ok(Self { _runtime: runtime })
    }
}

async fn send(stream: &mut TcpStream, path: &str, after: u64) -> io::Result<()> {
    let request = format!("GET {path}&after={after} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await
}

/// The `after` of a response.
fn confirmed(response: &[u8]) -> u64 {
    let after = str::from_utf8(response).ok().and_then(|text| {
        let (_, after) = text.split_once("\"after\":")?;
        after.split(',').next()?.parse().ok()
    });
    after.unwrap_or(0)
}
