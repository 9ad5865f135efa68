//! Load generator with one request in flight on each of its connections.
//!
//! One blocking thread serves the connections in turn. While it waits for one response, the server
//! handles the requests of the others. The thread does less work per request than the server, so
//! the server never waits for it.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use doorman_bench::read_response;

use crate::requests::Requests;

const CONNECTIONS: usize = 48;

#[derive(Debug)]
pub(crate) struct Load {
    streams: Vec<TcpStream>,
    requests: Requests,
    buffer: Vec<u8>,
}

impl Load {
    pub(crate) fn connect(server: SocketAddr, requests: Requests) -> io::Result<Self> {
        let connect = |_| {
            let stream = TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            Ok(stream)
        };
        Ok(Self {
            streams: (0..CONNECTIONS).map(connect).collect::<io::Result<_>>()?,
            requests,
            buffer: vec![0; 1024 * 1024],
        })
    }

    /// Sends at least this many requests.
    pub(crate) fn send(&mut self, requests: usize) -> io::Result<()> {
        self.run(|sent| sent < requests).map(drop)
    }

    /// Sends requests for this long. Returns the number of responses and the elapsed time.
    #[expect(
        clippy::disallowed_methods,
        reason = "measures elapsed time, not a lease"
    )]
    pub(crate) fn send_for(&mut self, duration: Duration) -> io::Result<(usize, Duration)> {
        let started = Instant::now();
        let responses = self.run(|_| started.elapsed() < duration)?;
        Ok((responses, started.elapsed()))
    }

    /// Sends requests while `continues` accepts the number of sent requests. Returns the number of
    /// responses.
    fn run(&mut self, continues: impl Fn(usize) -> bool) -> io::Result<usize> {
        let Self {
            streams,
            requests,
            buffer,
        } = self;
        for stream in &mut *streams {
            stream.write_all(requests.next())?;
        }
        let mut responses = 0_usize;
        loop {
            let is_last = !continues(responses + streams.len());
            for stream in &mut *streams {
                read_response(stream, buffer)?;
                responses += 1;
                if !is_last {
                    stream.write_all(requests.next())?;
                }
            }
            if is_last {
                return Ok(responses);
            }
        }
    }
}
