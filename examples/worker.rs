//! A worker that calls a partner at a rate of its own, and prints what became of its requests.
//!
//! Run several, against one partner:
//! `cargo run --example worker -- --server http://127.0.0.1:7300 --url http://127.0.0.1:8080/ --rate 20`
//!
//! All workers together send what the resource `partner` allows. With `feedback` in its template
//! that follows what the partner accepts: the layer counts its 429.

use std::{
    error::Error,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use clap::Parser;
use reqwest::{Client, StatusCode};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tower_doorman::{Doorman, Fallback, Limit, LimitedClient, SendError};

#[derive(Debug, Parser)]
#[command(name = "worker", about = "Calls a partner at a rate of its own")]
struct Arguments {
    /// Address of the control plane
    #[arg(long, value_name = "URL")]
    server: String,
    /// Address of the partner
    #[arg(long, value_name = "URL")]
    url: String,
    /// The target is a database: at most so many requests at once, by the gauge `db`
    #[arg(long)]
    gauge: bool,
    /// Requests per second that it would like to send
    #[arg(long, value_name = "N", default_value_t = 20.0)]
    rate: f64,
    /// Seconds to run
    #[arg(long, value_name = "N", default_value_t = 60.0)]
    seconds: f64,
}

/// Outcomes of the requests.
#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    refused_by_partner: AtomicU64,
    failed: AtomicU64,
    not_sent: AtomicU64,
}

impl Counts {
    fn count(&self, sent: &Result<reqwest::Response, SendError>) {
        let counter = match sent {
            Ok(response) if response.status() == StatusCode::TOO_MANY_REQUESTS => {
                &self.refused_by_partner
            }
            Ok(response) if response.status().is_success() => &self.accepted,
            Ok(_) | Err(SendError::Failed(_)) => &self.failed,
            Err(SendError::Refused(_)) => &self.not_sent,
        };
        counter.fetch_add(1, Relaxed);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    doorman_examples::init_log();
    let arguments = Arguments::parse();
    let doorman = Doorman::builder(arguments.server)
        .service("worker")
        .spawn()?;
    let limit = if arguments.gauge {
        Limit::gauge("db")
    } else {
        Limit::rate("partner").fallback(Fallback::Pessimistic)
    };
    let http = Client::new();
    let partner = LimitedClient::new(http.clone(), doorman.layer(limit)?);

    let counts = Arc::new(Counts::default());
    let mut due = interval(Duration::try_from_secs_f64(1.0 / arguments.rate)?);
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let end = sleep(Duration::try_from_secs_f64(arguments.seconds)?);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => break,
            _ = due.tick() => {
                let (partner, counts) = (partner.clone(), Arc::clone(&counts));
                let request = http.get(&arguments.url);
                tokio::spawn(async move { counts.count(&partner.send(request).await) });
            }
        }
    }
    writeln!(
        io::stdout(),
        "accepted: {}, refused by the partner: {}, failed: {}, not sent: {}",
        counts.accepted.load(Relaxed),
        counts.refused_by_partner.load(Relaxed),
        counts.failed.load(Relaxed),
        counts.not_sent.load(Relaxed)
    )?;
    doorman.shutdown().await?;
    Ok(())
}
