//! `doorman master` and `doorman ready`: the state of a server.

use std::{
    io::{self, IsTerminal},
    net::SocketAddr,
    path::PathBuf,
};

use doorman_openapi::{Discovery, ServerUrl, escape_hidden, paths};

use super::{
    banner::reachable,
    client::{Client, ServerArguments},
    failure::Failure,
    output::{self, JsonFlag, cell},
    serve_flags::socket_address,
};

/// The most lines of a server's text that are printed.
const MAX_REMARKS: usize = 10;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman master\n  doorman master --server http://10.0.0.5:7300,http://10.0.0.6:7300 --json"
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
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7300", value_parser = socket_address)]
    listen: SocketAddr,
    /// The local server uses TLS. Its certificate is not verified
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArguments,
}

/// The master in the answer of a server.
struct Found {
    address: String,
    response: serde_json::Value,
    discovery: Discovery,
}

impl Found {
    /// Whether it is the master now, and not only the last that the server has heard of.
    fn is_certain(&self) -> bool {
        self.discovery.is_master || self.discovery.election_unread_for.is_none()
    }

    /// A server may not know yet of a newer one.
    fn is_better_than(&self, other: &Self) -> bool {
        let rank = |it: &Self| (it.is_certain(), it.discovery.epoch);
        rank(self) > rank(other)
    }

    fn row(&self) -> [String; 5] {
        let discovery = &self.discovery;
        [
            self.address.clone(),
            discovery.node.to_string(),
            epoch(Some(discovery)),
            discovery.level.to_string(),
            discovery.server_id.to_string(),
        ]
    }
}

/// Asks each server until one knows the master; on a terminal each, whatever the others answer.
pub(super) async fn master(arguments: MasterArguments) -> Result<String, Failure> {
    let client = Client::new(&arguments.server)?;
    let shows_servers = io::stdout().is_terminal() && client.servers().len() > 1;
    let mut found: Option<Found> = None;
    let mut answers = Vec::new();
    for server in 0..client.servers().len() {
        if found.as_ref().is_some_and(Found::is_certain) && !shows_servers {
            break;
        }
        let answer = discover(&client, server).await;
        if let Ok((response, discovery)) = &answer
            && let Some(address) = &discovery.mastership.master_address
        {
            let new = Found {
                address: address.clone(),
                response: response.clone(),
                discovery: discovery.clone(),
            };
            if found.as_ref().is_none_or(|old| new.is_better_than(old)) {
                found = Some(new);
            }
        }
        answers.push(answer.map(|(_, discovery)| discovery));
    }
    let Some(found) = found else {
        return Err(no_master(&client, answers));
    };
    let text = if arguments.output.json {
        output::pretty_json(&found.response)?
    } else {
        let mut text = output::table(
            ["MASTER", "NODE", "EPOCH", "LEVEL", "SOURCE"],
            [found.row()],
        );
        if shows_servers {
            let rows = server_rows(client.servers(), &answers);
            text.push('\n');
            text += &output::table(["SERVER", "ANSWERS", "MASTER", "EPOCH"], rows);
        }
        text
    };
    if found.is_certain() {
        if found.discovery.election_unread_for.is_some() {
            let unread = unread(&found.discovery);
            let note = format!("it remains master only while its election lease lasts{unread}");
            output::note(&mut io::stderr(), &note);
        }
        return Ok(text);
    }
    let remembered = Failure::new(format!(
        "the master may be another one; {} was the last known{}",
        found.address,
        unread(&found.discovery)
    ));
    Err(remembered.with_output(text))
}

/// For how long a server could not read the election.
fn unread(discovery: &Discovery) -> String {
    let unread = discovery.election_unread_for;
    unread.map_or_else(String::new, |unread| {
        let server = &discovery.server_id;
        format!(
            ": {server} could not read the election for {} s",
            unread.get().floor()
        )
    })
}

/// The epoch of the node's master; `-` without an election, or if it is unknown.
fn epoch(discovery: Option<&Discovery>) -> String {
    cell(
        discovery
            .map(|it| it.epoch.get())
            .filter(|epoch| *epoch > 0),
    )
}

async fn discover(
    client: &Client,
    server: usize,
) -> Result<(serde_json::Value, Discovery), Failure> {
    let response: serde_json::Value = client.get_from(server, paths::DISCOVERY).await?;
    let discovery = client.decode(&response)?;
    Ok((response, discovery))
}

/// The answer or failure of each server. The exit code is that of no response if none answers.
fn no_master(client: &Client, answers: Vec<Result<Discovery, Failure>>) -> Failure {
    if let [Err(_)] = &answers[..] {
        return answers
            .into_iter()
            .find_map(Result::err)
            .unwrap_or_else(|| Failure::new("no server is named"));
    }
    let texts = client.servers().iter().zip(&answers);
    let texts = texts.map(|(server, answer)| match answer {
        Ok(discovery) => {
            let unread = unread(discovery);
            format!("{server} knows no master of {}{unread}", discovery.node)
        }
        Err(failure) => failure.reason().to_owned(),
    });
    let text = texts.collect::<Vec<_>>().join("; ");
    if answers.iter().all(Result::is_err) {
        Failure::no_response(text, false)
    } else {
        Failure::new(text)
    }
}

fn server_rows(servers: &[ServerUrl], answers: &[Result<Discovery, Failure>]) -> Vec<[String; 4]> {
    let yes_or_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let rows = servers.iter().zip(answers);
    rows.map(|(server, answer)| {
        let discovery = answer.as_ref().ok();
        [
            server.to_string(),
            yes_or_no(discovery.is_some()),
            cell(discovery.map(|it| yes_or_no(it.is_master))),
            epoch(discovery),
        ]
    })
    .collect()
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
    let remarks = remarks.map(|it| escape_hidden(it).into_owned() + "\n");
    Ok("ready\n".to_owned() + &remarks.collect::<String>())
}
