//! A check at the agent, compared with an `INCR` of Redis: both are one round trip on the machine.
//!
//! The agent is a process of its own. Its limit is fixed, so that no lease has to come first; a
//! lease makes no difference to a decision. One caller sends one request after the other.

use std::{
    env,
    error::Error,
    fs,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use doorman_bench::{
    Options, Row, Samples, ServerProcess, Table, Target, alternate_results, announce,
    wait_for_stdin_end,
};
use doorman_server::{Agent, AgentSettings, Exposure, ListenAddress, Settings};
use tower_doorman::Doorman;

/// The path of the agent's socket, in the process that serves.
const SOCKET: &str = "DOORMAN_BENCH_SOCKET";

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    match env::var_os(SOCKET) {
        Some(socket) => serve(PathBuf::from(socket)),
        None => compare(Options::from_args()),
    }
}

#[tokio::main]
async fn serve(socket: PathBuf) -> Result<(), Failure> {
    let tcp = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let settings = AgentSettings {
        listen: vec![ListenAddress::Tcp(tcp), ListenAddress::Unix(socket)],
        socket_mode: 0o600,
        exposure: Exposure::Loopback,
        max_connections: Settings::MAX_CONNECTIONS,
        max_permits: 1,
        rules: None,
        service: "bench".to_owned(),
        request_id_header: None,
    };
    let agent = Agent::bind(settings, Doorman::fixed([("api", 1e9)]))?;
    for address in agent.addresses() {
        if let ListenAddress::Tcp(address) = address {
            announce(address)?;
        }
    }
    let stop = async { drop(tokio::task::spawn_blocking(wait_for_stdin_end).await) };
    drop(agent.run(stop).await);
    Ok(())
}

#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn compare(options: Options) -> Result<(), Failure> {
    let home = tempfile::tempdir()?;
    let Some(redis) = Redis::start(home.path())? else {
        print("redis-server is not installed: nothing to compare the agent with");
        return Ok(());
    };
    let socket = home.path().join("agent.sock");
    let agent = ServerProcess::start(SOCKET, &socket)?;

    let body = r#"{"resource_id":"api"}"#;
    let check = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let incr = "*2\r\n$4\r\nINCR\r\n$3\r\napi\r\n".to_owned();
    let calls = options.pick(5_000, 500);
    let side =
        |stream: Box<dyn Stream>, request: &str, begin: &'static [u8], end: &'static [u8]| {
            let mut caller = Caller {
                stream,
                request: request.to_owned(),
                begin,
                end,
            };
            move || caller.round(calls)
        };
    let admitted = b"HTTP/1.1 200";
    let rounds = alternate_results(
        options.pick(11, 3),
        [
            &mut side(
                Box::new(UnixStream::connect(&socket)?),
                &check,
                admitted,
                b"]}",
            ),
            &mut side(Box::new(tcp(agent.address())?), &check, admitted, b"]}"),
            &mut side(
                Box::new(UnixStream::connect(redis.socket())?),
                &incr,
                b":",
                b"\r\n",
            ),
            &mut side(Box::new(tcp(redis.address)?), &incr, b":", b"\r\n"),
        ],
    );
    let mut figures = Vec::new();
    for rounds in rounds {
        figures.push(rounds.into_iter().collect::<io::Result<Vec<_>>>()?);
    }
    let mut table = Table::new("One round trip", "µs");
    for (name, percentile) in [("p50", 0), ("p99", 1)] {
        let samples = |side: usize| -> Samples {
            let rounds = figures.get(side).into_iter().flatten();
            rounds
                .filter_map(|it| it.get(percentile))
                .copied()
                .collect()
        };
        for (transport, ours, theirs) in [("Unix socket", 0, 2), ("TCP", 1, 3)] {
            table.add(Row::ratio(
                &format!("check, {transport}, {name}"),
                &samples(ours),
                &format!("Redis INCR, {transport}"),
                &samples(theirs),
                Target::None,
            ));
        }
    }
    table.print();
    Ok(())
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

struct Caller {
    stream: Box<dyn Stream>,
    request: String,
    /// How each response begins and ends.
    begin: &'static [u8],
    end: &'static [u8],
}

impl Caller {
    /// The median and the 99th percentile of so many calls, in microseconds.
    #[expect(
        clippy::disallowed_methods,
        reason = "measures elapsed time, not a lease"
    )]
    fn round(&mut self, calls: usize) -> io::Result<[f64; 2]> {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let started = Instant::now();
            self.call()?;
            times.push(started.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times.get(calls * part / 100).copied().unwrap_or(f64::NAN);
        Ok([at(50), at(99)])
    }

    fn call(&mut self) -> io::Result<()> {
        self.stream.write_all(self.request.as_bytes())?;
        let mut buffer = [0; 4096];
        let mut filled = 0;
        loop {
            let free = buffer.get_mut(filled..).unwrap_or_default();
            match self.stream.read(free)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
            let response = buffer.get(..filled).unwrap_or_default();
            if response.ends_with(self.end) {
                if response.starts_with(self.begin) {
                    return Ok(());
                }
                return Err(io::Error::other(String::from_utf8_lossy(response)));
            }
        }
    }
}

struct Redis {
    child: Child,
    address: SocketAddr,
    socket: PathBuf,
}

impl Redis {
    /// `None` if it is not installed.
    fn start(home: &Path) -> io::Result<Option<Self>> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let socket = home.join("redis.sock");
        let config = home.join("redis.conf");
        fs::write(
            &config,
            format!(
                "bind 127.0.0.1\nport {}\nunixsocket {}\nsave \"\"\nappendonly no\n",
                free.port(),
                socket.display()
            ),
        )?;
        let started = Command::new("redis-server")
            .arg(config)
            .stdout(Stdio::null())
            .spawn();
        let child = match started {
            Ok(child) => child,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let redis = Self {
            child,
            address: free,
            socket,
        };
        for _ in 0..500 {
            if UnixStream::connect(&redis.socket).is_ok() {
                return Ok(Some(redis));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(io::Error::other("redis-server does not listen"))
    }

    fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[expect(clippy::print_stdout, reason = "the output of a benchmark")]
fn print(text: &str) {
    println!("{text}");
}
