//! `doorman export`: the document, for a file of one's own.

use doorman_config::StoreReader;

use super::{
    failure::Failure,
    place::{self, Place, PlaceArguments},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every default is written out; comments are not kept.\n\nExamples:\n  doorman export > limits.yaml\n  \
    doorman export --store ./doorman-data/doorman.db --revision 7"
)]
pub(super) struct Arguments {
    /// Print JSON, not YAML
    #[arg(long, env = "DOORMAN_JSON", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    json: bool,
    /// The document as it was then; `doorman history` lists the revisions
    #[arg(long, env = "DOORMAN_REVISION", value_name = "N", requires = "store")]
    revision: Option<u64>,
    #[command(flatten)]
    place: PlaceArguments,
}

pub(super) async fn run(arguments: Arguments) -> Result<String, Failure> {
    let document = match arguments.place.place()? {
        Place::Server(client) => place::of_server(&client).await?.0,
        Place::Store(path) => place::of_store(&StoreReader::open(&path)?, arguments.revision)?,
    };
    if arguments.json {
        Ok(format!("{}\n", document.to_pretty_json()))
    } else {
        Ok(format!("{}\n", document.to_yaml().trim_end()))
    }
}
