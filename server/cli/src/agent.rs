//! `doorman agent`: flags, start and stop of the agent.

use std::{num::NonZeroUsize, path::PathBuf};

use axum::http::HeaderName;
use clap::builder::NonEmptyStringValueParser;
use doorman_config::FileSource;
use doorman_server::{
    Agent, AgentError, AgentSettings, AgentStopped, ListenAddress, Settings, observe::log::Format,
};
use tower_doorman::{Callers, ForwardedHeader, TrustedProxies};

use super::{
    client::{ServerArguments, host_name},
    failure::Failure,
    output,
    serve::{self, Signals},
    serve_flags::{LogFlags, at_least_one, exposure, socket_address},
};

#[derive(Debug, clap::Args)]
pub(super) struct AgentArguments {
    #[command(flatten)]
    network: NetworkFlags,
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    log: LogFlags,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Network")]
struct NetworkFlags {
    /// Listen addresses: HOST:PORT or unix:PATH; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT|unix:PATH", default_value = "127.0.0.1:7301", value_delimiter = ',', value_parser = listen_address)]
    listen: Vec<ListenAddress>,
    /// Permissions of Unix sockets, in octal
    #[arg(long, value_name = "MODE", default_value = "660", value_parser = socket_mode)]
    socket_mode: SocketMode,
    /// Maximum number of open connections of each address; beyond it, those idle for longest are
    /// closed
    #[arg(long, value_name = "N", default_value_t = Settings::MAX_CONNECTIONS, value_parser = at_least_one::<NonZeroUsize>)]
    max_connections: NonZeroUsize,
    /// Listen on other addresses than loopback
    ///
    /// The agent has no authentication: everyone who can reach the address may use the limits.
    #[arg(long)]
    insecure_no_auth: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
struct LimitFlags {
    /// Name of the service, which selects its rules; default: the host name
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    service: Option<String>,
    /// Name of this agent among those of the service: its pod, or its systemd unit and host. No two
    /// living agents may share it. The leases of a crashed agent pass to the next one of this name
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    instance: Option<String>,
    /// File with the `rules` of a document (YAML or JSON), for forwarded requests; default: the
    /// rules of the control plane. Changes are loaded without a restart
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Number of proxies that append to X-Forwarded-For of forwarded requests, including the one
    /// that asks the agent; 0 ignores the header
    #[arg(long, value_name = "N", default_value_t = 1)]
    trusted_hops: u8,
    /// Header in which the proxy sends an id per request. When it asks again within a second, the
    /// answer is the same, and nothing is charged. Only if the proxy sets the header itself: a
    /// caller that chooses the id evades its limit
    #[arg(long, value_name = "NAME")]
    request_id_header: Option<HeaderName>,
    /// Maximum number of resources that callers name; further ones share one limit
    #[arg(long, value_name = "N", default_value = "100000", value_parser = at_least_one::<NonZeroUsize>)]
    max_keys: NonZeroUsize,
    /// Maximum number of permits of gauges in use
    #[arg(long, value_name = "N", default_value = "100000", value_parser = at_least_one::<NonZeroUsize>)]
    max_permits: NonZeroUsize,
}

/// Permissions of a file.
#[derive(Debug, Clone, Copy)]
struct SocketMode(u32);

fn socket_mode(text: &str) -> Result<SocketMode, &'static str> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(SocketMode(mode)),
        Ok(_) | Err(_) => Err("must be octal permissions, such as 660"),
    }
}

fn listen_address(text: &str) -> Result<ListenAddress, String> {
    match text.strip_prefix("unix:") {
        Some("") => Err("must be unix:PATH, such as unix:/run/doorman/agent.sock".to_owned()),
        Some(path) => Ok(ListenAddress::Unix(path.into())),
        None => socket_address(text).map(ListenAddress::Tcp),
    }
}

pub(super) fn run(arguments: AgentArguments) -> Result<(), Failure> {
    let _guard = arguments.log.start()?;
    serve::restrict_new_files();
    serve::run_with(serve(arguments))
}

async fn serve(arguments: AgentArguments) -> Result<(), Failure> {
    let AgentArguments {
        network,
        server,
        limits,
        log,
    } = arguments;
    let mut signals = Signals::new(serve::has_terminal())?;
    let service = limits.service.unwrap_or_else(host_name);
    let hops = TrustedProxies::hops(limits.trusted_hops, ForwardedHeader::XForwardedFor);
    let mut builder = server
        .layer()
        .service(&*service)
        .callers(Callers::new().trusted_proxies(hops))
        .max_keys(limits.max_keys.get());
    if let Some(instance) = limits.instance {
        builder = builder.instance(instance);
    }
    let settings = AgentSettings {
        listen: network.listen,
        socket_mode: network.socket_mode.0,
        exposure: exposure(network.insecure_no_auth),
        max_connections: network.max_connections,
        max_permits: limits.max_permits.get(),
        rules: limits.rules.map(FileSource::new),
        service,
        request_id_header: limits.request_id_header,
    };
    // The worker starts after the bind: an agent that cannot listen sends no requests.
    let (doorman, worker) = builder.build()?;
    let agent = Agent::bind(settings, doorman).map_err(|error| match error {
        AgentError::Rules(error) => Failure::from_document(&error),
        error => error.into(),
    })?;
    tokio::spawn(worker.run());
    for address in agent.addresses() {
        match log.log_format {
            Format::Text => output::print(&format!("Listening on {address}\n"))?,
            Format::Json => tracing::info!(%address, "listening"),
        }
    }
    let AgentStopped { cut_off } = signals.run(|stop| agent.run(stop)).await?;
    serve::log_stop(cut_off);
    Ok(())
}
