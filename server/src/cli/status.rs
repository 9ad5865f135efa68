//! `doorman master` and `doorman ready`: the state of a server.

use std::{net::SocketAddr, path::PathBuf};

use doorman_openapi::{Discovery, paths};

use super::{
    banner::reachable,
    client::{Client, ServerArguments},
    failure::Failure,
    output::{self, JsonFlag},
    serve_flags::socket_address,
};

/// The most lines of a server's text that are printed.
const MAX_REMARKS: usize = 10;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman master\n  doorman master --server http://10.0.0.5:7300 --json"
)]
pub(super) struct MasterArguments {
    #[command(flatten)]
    output: JsonFlag,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  doorman ready --server http://10.0.0.5:7300 || echo not ready")]
pub(super) struct ReadyArguments {
    /// Listen address of the local server, which is probed without --server
    #[arg(long, env = "DOORMAN_LISTEN", value_name = "HOST:PORT", default_value = "127.0.0.1:7300", value_parser = socket_address)]
    listen: SocketAddr,
    /// The local server uses TLS. Its certificate is not verified
    #[arg(long, env = "DOORMAN_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArguments,
}

pub(super) async fn master(arguments: MasterArguments) -> Result<String, Failure> {
    let client = Client::new(&arguments.server)?;
    let response: serde_json::Value = client.get(paths::DISCOVERY).await?;
    if arguments.output.json {
        return output::pretty_json(&response);
    }
    let discovery: Discovery = client.decode(&response)?;
    let Some(master) = discovery.mastership.master_address else {
        return Err(Failure::new(format!(
            "{} knows no master of {}",
            discovery.server_id, discovery.node
        )));
    };
    Ok(output::table(
        ["MASTER", "NODE", "EPOCH", "LEVEL", "SOURCE"],
        &[[
            master,
            discovery.node.to_string(),
            discovery.epoch.get().to_string(),
            discovery.level.to_string(),
            discovery.server_id.to_string(),
        ]],
    ))
}

pub(super) async fn ready(arguments: ReadyArguments) -> Result<String, Failure> {
    let client = if arguments.server.has_server() {
        Client::new(&arguments.server)?
    } else {
        let scheme = arguments.tls_cert.map_or("http", |_| "https");
        let url = format!("{scheme}://{}", reachable(arguments.listen)).parse()?;
        Client::local(&arguments.server, url)?
    };
    let text = client.probe(paths::READYZ).await?;
    // Any server may have sent it, and it is shown on a terminal.
    let remarks = text.lines().skip(1).take(MAX_REMARKS);
    let remarks = remarks.map(|it| it.replace(char::is_control, "?") + "\n");
    Ok("ready\n".to_owned() + &remarks.collect::<String>())
}
