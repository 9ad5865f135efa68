//! `doorman serve`: the control plane.

use std::{
    future::poll_fn,
    io::{self, IsTerminal},
    net::{SocketAddr, ToSocketAddrs},
    num::{NonZeroU32, NonZeroUsize},
    path::{Path, PathBuf},
    pin::pin,
    str::FromStr,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use clap::{ArgAction, ValueEnum, builder::FalseyValueParser};
use doorman_config::{Document, FileSource, LastGoodFile, Source};
use doorman_openapi::{NodeId, ServerId};
use doorman_server::{
    BaseUrl, CallerLimit, EmptyDirectory, Server, Settings, ledger::UnmatchedPolicy,
    observe::log::Format,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use super::{auth, banner, failure::Failure, log::LogArguments, say, tls};

/// How long to wait in the end for what still blocks. The books are left by then, and a change of the document is in the store whole or not
/// at all.
const LEFT_BEHIND: Duration = Duration::from_secs(1);

/// The store in the data directory, when no other source is named.
const STORE: &str = "doorman.db";

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where to listen; port 0 takes a free one
    #[arg(long, env = "DOORMAN_LISTEN", value_name = "HOST:PORT", default_value = "127.0.0.1:7300", value_parser = address)]
    listen: SocketAddr,
    /// Where to serve /metrics, /livez and /readyz, and nothing else, without TLS and without a token
    #[arg(long, env = "DOORMAN_METRICS_LISTEN", value_name = "HOST:PORT", value_parser = address)]
    metrics_listen: Option<SocketAddr>,
    /// Where the document is that says how much there is of what: sqlite:PATH, a store that is changed over HTTP; or file:PATH, YAML or
    /// JSON, followed as it changes. Absent: the store doorman.db in the data directory, which begins with a built-in document
    #[arg(long, env = "DOORMAN_CONFIG", value_name = "SOURCE", value_parser = Source::parse)]
    config: Option<Source>,
    /// Where to keep what must outlive a start; made when it is absent
    #[arg(
        long,
        env = "DOORMAN_DATA_DIR",
        value_name = "DIR",
        default_value = "./doorman-data"
    )]
    data_dir: PathBuf,
    /// The address at which others reach this server. Absent: the one it listens on
    #[arg(long, env = "DOORMAN_ADVERTISE", value_name = "URL")]
    advertise: Option<BaseUrl>,
    /// The name of this server. Absent: host name and port
    #[arg(long, env = "DOORMAN_SERVER_ID", value_name = "NAME")]
    server_id: Option<ServerId>,
    /// The name of this server's node, kept in the data directory. Absent: a random one, made at the first start
    #[arg(long, env = "DOORMAN_NODE", value_name = "NAME")]
    node: Option<NodeId>,
    /// The most leases that the books hold, of all resources together
    #[arg(
        long,
        env = "DOORMAN_MAX_LEASES",
        value_name = "N",
        default_value = "1000000",
        value_parser = at_least_one::<NonZeroUsize>
    )]
    max_leases: NonZeroUsize,
    /// The most connections at one time; an idle one takes 1.4 KiB of memory, 10 KiB by TLS, and one with a request 17 KiB more. When all are taken, those that
    /// have waited longest for their peers are closed
    #[arg(long, env = "DOORMAN_MAX_CONNECTIONS", value_name = "N", default_value_t = Settings::MAX_CONNECTIONS, value_parser = at_least_one::<NonZeroUsize>)]
    max_connections: NonZeroUsize,
    /// How many decisions a second one caller may ask for: who a token speaks of, or, without authentication, whoever is at one address.
    /// A request counts as eight and each of its resources as one more. `off`: as many as it likes. Operators have an account of their own, which is never slower
    /// than 400000. Absent: 400000, and no limit for callers without a token on this machine
    #[arg(long, env = "DOORMAN_CALLER_RATE", value_name = "N|off", value_parser = caller_rate)]
    caller_rate: Option<CallerRate>,
    /// How many of them it may save up. Absent: what comes in two seconds
    #[arg(long, env = "DOORMAN_CALLER_BURST", value_name = "N", value_parser = at_least_one::<NonZeroU32>)]
    caller_burst: Option<NonZeroU32>,
    /// What a resource that no template matches gets
    #[arg(
        long,
        env = "DOORMAN_UNMATCHED",
        value_name = "WHAT",
        default_value = "grant"
    )]
    unmatched: UnmatchedArgument,
    /// Say that no server of this node has ever run: an empty data directory is then no lost one, and nothing has to be learned. Has
    /// no effect on a directory that a server has used
    #[arg(long, env = "DOORMAN_FIRST_START", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    first_start: bool,
    #[command(flatten)]
    log: LogArguments,
    #[command(flatten)]
    auth: auth::AuthArguments,
    #[command(flatten)]
    tls: tls::TlsArguments,
}

#[cfg(test)]
impl Arguments {
    /// What the flags of TLS alone come to.
    pub(super) fn tls_settings(self) -> Result<Option<doorman_server::TlsSettings>, Failure> {
        self.tls.settings()
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum UnmatchedArgument {
    /// What is asked for
    Grant,
    /// Nothing
    Refuse,
}

#[derive(Debug, Clone, Copy)]
enum CallerRate {
    Of(NonZeroU32),
    Off,
}

fn at_least_one<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse()
        .map_err(|_| "must be a whole number of at least 1")
}

fn caller_rate(text: &str) -> Result<CallerRate, &'static str> {
    match text {
        "off" => Ok(CallerRate::Off),
        number => {
            let number = number.parse().map(CallerRate::Of);
            number.map_err(|_| "must be a number of at least 1, or off")
        }
    }
}

/// Who says anything of it means all callers.
fn caller_limit(rate: Option<CallerRate>, burst: Option<NonZeroU32>) -> CallerLimit {
    let rate = match (rate, burst) {
        (None, None) => return CallerLimit::Usual,
        (Some(CallerRate::Off), _) => return CallerLimit::Off,
        (None, Some(_)) => CallerLimit::RATE,
        (Some(CallerRate::Of(rate)), _) => rate,
    };
    let burst = burst.unwrap_or(CallerLimit::burst(rate));
    CallerLimit::Of { rate, burst }
}

/// Takes names as well as addresses: `localhost:7300`.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    match text.to_socket_addrs() {
        Ok(mut all) => all.next().ok_or_else(|| format!("{text} has no address")),
        Err(error) => Err(format!(
            "must be HOST:PORT, such as 127.0.0.1:7300: {error}"
        )),
    }
}

pub(super) fn run(arguments: Arguments) -> Result<(), Failure> {
    let (_guard, format) = arguments.log.start()?;
    let settings = settings(arguments)?;
    open_as_many_files_as_allowed();
    for warning in settings.document.warnings() {
        tracing::warn!("{}: {warning}", settings.config_source);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(serve(settings, format));
    // Dropped, it would wait for all that blocks: a file system or a name server that does not answer.
    runtime.shutdown_timeout(LEFT_BEHIND);
    served
}

/// The lower of the two limits of open files is one for programs that cannot handle many; it would leave room for few connections.
fn open_as_many_files_as_allowed() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

fn settings(arguments: Arguments) -> Result<Settings, Failure> {
    let Arguments {
        listen,
        metrics_listen,
        config,
        data_dir,
        advertise,
        server_id,
        node,
        max_leases,
        max_connections,
        caller_rate,
        caller_burst,
        unmatched,
        first_start,
        log: _,
        auth,
        tls,
    } = arguments;
    let tls = tls.settings()?;
    let (auth, exposure) = auth.settings();
    let config = config.unwrap_or_else(|| Source::Sqlite(data_dir.join(STORE)));
    let (document, document_error) = match &config {
        Source::File(file) => of_file(file, &data_dir)?,
        Source::Sqlite(_) => (Document::built_in(), None),
    };
    Ok(Settings {
        listen,
        metrics_listen,
        data_dir,
        document: Arc::new(document),
        document_error,
        config_source: config.to_string(),
        document_source: Some(config),
        advertise,
        server_id,
        node,
        max_leases: max_leases.get(),
        max_connections,
        unmatched: match unmatched {
            UnmatchedArgument::Grant => UnmatchedPolicy::Grant,
            UnmatchedArgument::Refuse => UnmatchedPolicy::Refuse,
        },
        auth,
        tls,
        exposure,
        empty_directory: if first_start {
            EmptyDirectory::FirstStart
        } else {
            EmptyDirectory::MayBeLost
        },
        callers: caller_limit(caller_rate, caller_burst),
    })
}

/// What a file says; where it has a fault, what it said when it was last good, and the fault. Else a crash would make an outage of an edit
/// that was refused.
fn of_file(file: &FileSource, data_dir: &Path) -> Result<(Document, Option<String>), Failure> {
    file.load()
        .map(|document| (document, None))
        .or_else(|error| {
            let last_good = LastGoodFile::in_dir(data_dir).load(file);
            let last_good = last_good.map(|document| (document, Some(error.full_message())));
            last_good.ok_or_else(|| Failure::of_document(&error))
        })
}

async fn serve(settings: Settings, format: Format) -> Result<(), Failure> {
    // Before anything is said: who reads that we serve may tell us to stop at once.
    let mut signals = Signals::new(is_in_terminal())?;
    let config_source = settings.config_source.clone();
    let token = settings.auth.as_ref().map(banner::token);
    let server = Server::bind(settings).await?;
    match format {
        Format::Text => say(&banner::text(&server, &config_source, token.as_deref()))?,
        // Whoever reads the log by a machine reads both outputs by it.
        Format::Json => banner::log(&server, &config_source),
    }

    let (stop, stopping) = oneshot::channel::<()>();
    let mut running = pin!(server.run(async {
        // A sender that is gone is as good as a word from it.
        drop(stopping.await);
    }));
    let stopped = tokio::select! {
        stopped = &mut running => stopped,
        () = signals.next() => {
            tracing::info!("stopping: answering what is under way; a second signal stops at once");
            drop(stop);
            tokio::select! {
                stopped = running => stopped,
                () = signals.next() => return Err(Failure::new("stopped at once by a second signal")),
            }
        }
    };
    match stopped.cut_off {
        0 => tracing::info!("stopped"),
        connections => tracing::warn!(connections, "stopped; some connections had to be cut off"),
    }
    Ok(())
}

/// The signals that ask a server to stop.
///
/// SIGHUP is what a terminal sends when it closes, and ends what runs in it. Elsewhere it asks for files to be read again, which are
/// followed anyway: unheard, it would end the server without leaving its books.
///
/// It is never a second signal, for one terminal that closes may send it twice: by the shell, to its jobs, and by the kernel when the shell
/// is gone (POSIX, `_exit`: of a controlling process, to the foreground process group).
struct Signals {
    stop: [Signal; 2],
    hang_up: Signal,
    hang_up_stops: bool,
}

impl Signals {
    fn new(in_terminal: bool) -> io::Result<Self> {
        Ok(Self {
            stop: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
            ],
            hang_up: signal(SignalKind::hangup())?,
            hang_up_stops: in_terminal,
        })
    }

    async fn next(&mut self) {
        poll_fn(|cx| {
            let any = self
                .stop
                .iter_mut()
                .any(|signal| signal.poll_recv(cx).is_ready());
            if any {
                return Poll::Ready(());
            }
            while self.hang_up.poll_recv(cx).is_ready() {
                if self.hang_up_stops {
                    return Poll::Ready(());
                }
                tracing::info!("SIGHUP changes nothing: files are followed as they change");
            }
            Poll::Pending
        })
        .await;
        self.hang_up_stops = false;
    }
}

/// Any of its files may be redirected, and the terminal ends it all the same.
fn is_in_terminal() -> bool {
    io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use rustix::process::{Signal as Sent, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn a_hang_up_ends_what_runs_in_a_terminal_and_is_no_second_signal() {
        let mut hung_up = signal(SignalKind::hangup()).unwrap();
        let mut interrupted = signal(SignalKind::interrupt()).unwrap();
        for in_terminal in [false, true] {
            let mut signals = Signals::new(in_terminal).unwrap();
            let mut stops = || signals.next().now_or_never().is_some();
            for expected in [in_terminal, false] {
                kill_process(getpid(), Sent::HUP).unwrap();
                hung_up.recv().await.unwrap();
                assert_eq!(stops(), expected);
            }
            kill_process(getpid(), Sent::INT).unwrap();
            interrupted.recv().await.unwrap();
            assert!(stops());
        }
    }
}
