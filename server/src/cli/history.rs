//! `doorman history`: who changed what of the document, and when.

use doorman_config::StoreReader;
use doorman_openapi::{HistoryPage, PastChange, paths};
use serde_json::json;

use super::{
    client::Client,
    failure::Failure,
    place::{Place, PlaceArguments},
    table::Table,
    time,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman history\n  doorman history --limit 5 --json\n  doorman history --store ./doorman-data/doorman.db"
)]
pub(super) struct Arguments {
    /// The most changes to list, the newest first
    #[arg(long, env = "DOORMAN_LIMIT", value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print JSON
    #[arg(long, env = "DOORMAN_JSON", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    json: bool,
    #[command(flatten)]
    place: PlaceArguments,
}

/// The most changes that a page has.
const PAGE: usize = 1_000;

pub(super) async fn run(arguments: Arguments) -> Result<String, Failure> {
    let changes = match arguments.place.place()? {
        Place::Server(client) => of_server(&client, arguments.limit).await?,
        Place::Store(path) => StoreReader::open(&path)?.history(None, arguments.limit)?,
    };
    if arguments.json {
        return Ok(format!("{:#}\n", json!({"changes": changes})));
    }
    let mut table = Table::new(["REVISION", "CHANGED", "BY", "CHANGE"]);
    for past in changes {
        table.row([
            past.revision.to_string(),
            time::utc(past.changed_at),
            past.changed_by,
            past.change,
        ]);
    }
    Ok(table.to_string())
}

async fn of_server(client: &Client, limit: usize) -> Result<Vec<PastChange>, Failure> {
    let mut changes = Vec::new();
    let mut cursor = Some(String::new());
    while let Some(from) = cursor.filter(|_| changes.len() < limit) {
        let page = limit.saturating_sub(changes.len()).min(PAGE);
        let path = format!("{}?limit={page}&cursor={from}", paths::HISTORY);
        let page: HistoryPage = client.get(&path).await?;
        changes.extend(page.changes);
        cursor = page.next_cursor;
    }
    Ok(changes)
}
