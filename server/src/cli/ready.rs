//! `doorman ready`: whether a server takes requests, for those who look after it where there is no other program, as in a container.

use doorman_openapi::paths;

use super::{
    client::{Client, ServerArgument},
    failure::Failure,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  doorman ready --server http://10.0.0.5:7300 || echo not yet")]
pub(super) struct Arguments {
    #[command(flatten)]
    server: ServerArgument,
}

pub(super) async fn run(arguments: Arguments) -> Result<String, Failure> {
    let client = Client::new(arguments.server)?;
    client.probe(paths::READYZ).await?;
    Ok("ready\n".to_owned())
}
