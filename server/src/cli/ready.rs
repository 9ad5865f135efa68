//! `doorman ready`: whether a server takes requests, for those who look after it where there is no other program, as in a container.

use std::{net::SocketAddr, path::PathBuf};

use doorman_openapi::paths;

use super::{
    banner::reachable,
    client::{Client, ServerArgument},
    failure::Failure,
    serve,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  doorman ready --server http://10.0.0.5:7300 || echo not yet")]
pub(super) struct Arguments {
    #[command(flatten)]
    server: ServerArgument,
    /// Where the server of this machine listens, which is asked when no --server is named
    #[arg(long, env = "DOORMAN_LISTEN", value_name = "HOST:PORT", default_value = "127.0.0.1:7300", value_parser = serve::address)]
    listen: SocketAddr,
    /// That server speaks TLS. Its certificate is not looked at: it is for the names that others know the server by
    #[arg(long, env = "DOORMAN_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
}

pub(super) async fn run(arguments: Arguments) -> Result<String, Failure> {
    let Arguments {
        server,
        listen,
        tls_cert,
    } = arguments;
    let client = if server.is_named() {
        Client::new(server)?
    } else {
        let scheme = tls_cert.map_or("http", |_| "https");
        let here = format!("{scheme}://{}", reachable(listen)).parse()?;
        Client::of_this_machine(&server, here)?
    };
    client.probe(paths::READYZ).await?;
    Ok("ready\n".to_owned())
}
