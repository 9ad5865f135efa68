//! `doorman master` and `doorman ready`: the state of a server.

use std::{
    io::{self, IsTerminal},
    net::SocketAddr,
    path::PathBuf,
};

use doorman_openapi::{Discovery, ServerUrl, paths};

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

/// Asks each server until one knows the master; on a terminal each, whatever the others answer.
pub(super) async fn master(arguments: MasterArguments) -> Result<String, Failure> {
    let client = Client::new(&arguments.server)?;
    let shows_servers = io::stdout().is_terminal() && client.servers().len() > 1;
    let mut found = None;
    let mut answers = Vec::new();
    for server in 0..client.servers().len() {
        if found.is_some() && !shows_servers {
            break;
        }
        let answer = discover(&client, server).await;
        if let Ok((response, discovery)) = &answer
            && let Some(master) = &discovery.mastership.master_address
            // A server may not know yet of a newer one.
            && found.as_ref().is_none_or(|(_, _, epoch)| *epoch < discovery.epoch)
        {
            let row = [
                master.clone(),
                discovery.node.to_string(),
                discovery.epoch.get().to_string(),
                discovery.level.to_string(),
                discovery.server_id.to_string(),
            ];
            found = Some((response.clone(), row, discovery.epoch));
        }
        answers.push(answer.map(|(_, discovery)| discovery));
    }
    let Some((response, row, _)) = found else {
        return Err(no_master(&client, answers));
    };
    if arguments.output.json {
        return output::pretty_json(&response);
    }
    let mut text = output::table(["MASTER", "NODE", "EPOCH", "LEVEL", "SOURCE"], [row]);
    if shows_servers {
        let rows = server_rows(client.servers(), &answers);
        text.push('\n');
        text += &output::table(["SERVER", "ANSWERS", "MASTER", "EPOCH"], rows);
    }
    Ok(text)
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
        Ok(discovery) => format!("{server} knows no master of {}", discovery.node),
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
            cell(discovery.map(|it| it.epoch.get())),
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
    let remarks = remarks.map(|it| it.replace(char::is_control, "?") + "\n");
    Ok("ready\n".to_owned() + &remarks.collect::<String>())
}
