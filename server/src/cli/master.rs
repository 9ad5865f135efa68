//! `doorman master`: who is master of a node, by the word of one of its servers.

use doorman_openapi::{Discovery, paths};

use super::{
    client::{Client, ServerArgument},
    failure::Failure,
    table::Table,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman master\n  doorman master --server http://10.0.0.5:7300 --json"
)]
pub(super) struct Arguments {
    /// Print the server's answer as it came
    #[arg(long, env = "DOORMAN_JSON", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    json: bool,
    #[command(flatten)]
    server: ServerArgument,
}

pub(super) async fn run(arguments: Arguments) -> Result<String, Failure> {
    let client = Client::new(arguments.server)?;
    if arguments.json {
        let answer: serde_json::Value = client.get(paths::DISCOVERY).await?;
        return Ok(format!("{answer:#}\n"));
    }
    let Discovery {
        is_master: _,
        mastership,
        server_id,
        node,
        level,
        epoch,
    } = client.get(paths::DISCOVERY).await?;
    let Some(master) = mastership.master_address else {
        return Err(Failure::new(format!(
            "{server_id} knows no master of {node}"
        )));
    };
    let mut table = Table::new(["MASTER", "NODE", "EPOCH", "LEVEL", "SAYS"]);
    table.row([
        master,
        node.to_string(),
        epoch.get().to_string(),
        level.to_string(),
        server_id.to_string(),
    ]);
    Ok(table.to_string())
}
