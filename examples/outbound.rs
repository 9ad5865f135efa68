//! An outbound reqwest client: all its instances together stay within the limit of a partner.
//!
//! Run with:
//! `cargo run --example outbound -- --server http://127.0.0.1:7300 --url http://127.0.0.1:8080/`
//!
//! It sends requests to the URL as fast as its lease of the resource `partner` allows, and prints
//! how they were answered. Start it twice: both share the limit. The partner may be any web server,
//! such as the example `service`.

use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, Write},
    time::Duration,
};

use clap::Parser;
use futures_util::{StreamExt, stream};
use reqwest::{Client, redirect};
use tower_doorman::{Doorman, Fallback, Limit, LimitedClient, OnLimit, RetryPolicy, SendError};

/// How long a request waits for its turn.
const MAX_DELAY: Duration = Duration::from_secs(30);

#[derive(Debug, Parser)]
#[command(name = "outbound", about = "An outbound reqwest client behind a limit")]
struct Arguments {
    /// Address of the control plane
    #[arg(long, value_name = "URL")]
    server: String,
    /// Address of the partner
    #[arg(long, value_name = "URL")]
    url: String,
    /// Number of requests
    #[arg(long, value_name = "N", default_value_t = 100)]
    requests: usize,
    /// Number of requests that wait or are in flight at once
    #[arg(long, value_name = "N", default_value_t = 8)]
    parallel: usize,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    doorman_examples::init_log();
    let arguments = Arguments::parse();
    let doorman = Doorman::builder(arguments.server)
        .service("outbound")
        .spawn()?;
    // Without a lease nothing is sent: the partner's limit is strict.
    let limit = Limit::rate("partner")
        .on_limit(OnLimit::Delay {
            max_delay: MAX_DELAY,
        })
        .fallback(Fallback::Pessimistic);
    // A redirect that reqwest follows would be a request beside the limit.
    let http = Client::builder()
        .redirect(redirect::Policy::none())
        .build()?;
    let policy = RetryPolicy::new().retry_errors(reqwest::Error::is_connect);
    let partner = LimitedClient::new(http.clone(), doorman.layer(limit)?).retry(policy);

    let url = arguments.url.as_str();
    let answers = stream::iter(0..arguments.requests)
        .map(|_| async { answer(partner.send(http.get(url)).await) })
        .buffer_unordered(arguments.parallel.max(1))
        .fold(BTreeMap::<_, u32>::new(), async |mut answers, answer| {
            *answers.entry(answer).or_default() += 1;
            answers
        })
        .await;
    for (answer, count) in answers {
        writeln!(io::stdout(), "{answer}: {count}")?;
    }
    doorman.shutdown().await?;
    Ok(())
}

fn answer(sent: Result<reqwest::Response, SendError>) -> String {
    match sent {
        Ok(response) => response.status().to_string(),
        Err(SendError::Refused(refusal)) => format!("not sent, {refusal}"),
        Err(SendError::Failed(error)) => format!("failed, {error}"),
    }
}
