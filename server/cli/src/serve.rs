//! `doorman serve`: start, signals and shutdown of the control plane.

use std::{
    future::poll_fn,
    io::{self, IsTerminal},
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use doorman_server::{Server, Settings, observe::log::Format};
use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, getrlimit, setrlimit, umask},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use super::{banner, failure::Failure, output, serve_flags::ServeArguments};

/// Time for blocking tasks after the stop: the ledger is written, document changes are atomic.
const BLOCKING_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) fn run(arguments: ServeArguments) -> Result<(), Failure> {
    let _guard = arguments.log.start()?;
    let format = arguments.log.log_format;
    restrict_new_files();
    let settings = arguments.settings()?;
    for warning in settings.document.warnings() {
        tracing::warn!("{}: {warning}", settings.config_source);
    }
    run_with(serve(settings, format))
}

/// For the files of the data directory, a store elsewhere, and sockets.
pub(super) fn restrict_new_files() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Runs a daemon.
pub(super) fn run_with(daemon: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    raise_open_files_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(daemon);
    // Dropping the runtime would wait for a blocked file system or name server.
    runtime.shutdown_timeout(BLOCKING_SHUTDOWN_TIMEOUT);
    result
}

/// Raises the soft limit of open files to the hard limit: each connection needs a file.
fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
}

async fn serve(settings: Settings, format: Format) -> Result<(), Failure> {
    // Handle signals before printing anything: a supervisor may send one as soon as it reads that.
    let mut signals = Signals::new(has_terminal())?;
    let config_source = settings.config_source.clone();
    let token = settings.auth.as_ref().map(banner::token_expression);
    let server = tokio::select! {
        server = Server::bind(settings) => server?,
        // A start may wait for etcd.
        () = signals.stop() => return Ok(()),
    };
    match format {
        Format::Text => output::print(&banner::text(&server, &config_source, token.as_deref()))?,
        // Programs that read JSON logs expect no other text.
        Format::Json => banner::log(&server, &config_source),
    }

    let stopped = signals.run(|stop| server.run(stop)).await?;
    if let Some(task) = stopped.failed {
        return Err(Failure::new(format!(
            "stopped, since the background task `{task}` ended; see the log"
        )));
    }
    log_stop(stopped.cut_off);
    Ok(())
}

pub(super) fn log_stop(cut_off: usize) {
    match cut_off {
        0 => tracing::info!("stopped"),
        connections => tracing::warn!(
            connections,
            "stopped; some connections were closed during a request"
        ),
    }
}

/// Resolves when a daemon has to stop.
type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Signals that stop the server: SIGTERM, SIGINT, and SIGHUP in a terminal.
///
/// A terminal that closes sends SIGHUP up to twice, from the shell and from the kernel, so it is
/// never a second signal. Without a terminal it asks to reload files; these are followed anyway.
pub(super) struct Signals {
    stop: [Signal; 2],
    hang_up: Signal,
    hang_up_stops: bool,
}

impl Signals {
    pub(super) fn new(has_terminal: bool) -> io::Result<Self> {
        Ok(Self {
            stop: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
            ],
            hang_up: signal(SignalKind::hangup())?,
            hang_up_stops: has_terminal,
        })
    }

    /// Runs a daemon, which is given a future that resolves when it has to stop.
    ///
    /// # Errors
    /// If a second signal comes before it has stopped.
    pub(super) async fn run<F: Future>(
        &mut self,
        daemon: impl FnOnce(Stop) -> F,
    ) -> Result<F::Output, Failure> {
        let (stop, stop_requested) = oneshot::channel::<()>();
        let mut running = pin!(daemon(Box::pin(async {
            // A dropped sender stops it, too.
            drop(stop_requested.await);
        })));
        tokio::select! {
            stopped = &mut running => return Ok(stopped),
            () = self.stop() => {}
        }
        tracing::info!("shutting down: finishing open requests; a second signal stops immediately");
        drop(stop);
        tokio::select! {
            stopped = running => Ok(stopped),
            () = self.stop() => Err(Failure::new("stopped immediately by a second signal")),
        }
    }

    async fn stop(&mut self) {
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
                tracing::info!("ignoring SIGHUP: changed files are loaded without it");
            }
            Poll::Pending
        })
        .await;
        self.hang_up_stops = false;
    }
}

/// Whether a terminal may send SIGHUP. Any of the three may be redirected.
pub(super) fn has_terminal() -> bool {
    io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use rustix::process::{Signal as Sent, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn hang_up_stops_once_and_only_in_a_terminal() {
        let mut hung_up = signal(SignalKind::hangup()).unwrap();
        let mut interrupted = signal(SignalKind::interrupt()).unwrap();
        for in_terminal in [false, true] {
            let mut signals = Signals::new(in_terminal).unwrap();
            let mut stops = || signals.stop().now_or_never().is_some();
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
