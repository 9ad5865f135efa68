//! The show: the processes, the load that shifts between them, and the table.

use std::{error::Error, io, pin::pin, time::Duration};

use doorman_examples::load::{Load, Target};
use tokio::time;

use crate::{
    plan::Split,
    processes::Processes,
    screen::Screen,
    summary::{AVERAGED, Averages, SETTLING, Summary},
    table::Table,
    views::Views,
};

/// Connections to each service.
const CONNECTIONS: usize = 32;
const SECOND: Duration = Duration::from_secs(1);

/// What a person may ask for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// End after so many seconds; absent: on Ctrl-C
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Where the control plane listens, on 127.0.0.1
    #[arg(long, default_value_t = 7300)]
    port: u16,
    /// Requests per second that the whole fleet may admit
    #[arg(long, default_value_t = 1000.0, value_parser = positive)]
    limit: f64,
    /// Requests per second that are offered to the whole fleet at most
    #[arg(long, default_value_t = 3000.0, value_parser = positive)]
    load: f64,
}

fn positive(text: &str) -> Result<f64, &'static str> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number <= 1e6 => Ok(number),
        Ok(_) | Err(_) => Err("must be a number above 0, up to 1000000"),
    }
}

/// Starts everything, shows it until `stop` is ready or the time is over, and ends everything.
pub(crate) async fn run(
    options: Options,
    stop: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let mut processes = Processes::start(options.port, options.limit).await?;
    let shown = show(&options, &mut processes, stop).await;
    processes.stop().await?;
    match shown {
        // Whoever reads the table through a pipe has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        shown => Ok(shown?),
    }
}

async fn show(
    options: &Options,
    processes: &mut Processes,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let services = processes.services();
    let views = Views::new(processes.control_plane(), services).map_err(io::Error::other)?;
    let [first, second, third] =
        services.map(|service| Target::new(service).map_err(io::Error::other));
    let load = Load::start([first?, second?, third?], CONNECTIONS);
    let mut split = Split::at(Duration::ZERO);
    load.offer(split.rates(options.load));

    let mut screen = Screen::new();
    let mut averages = Averages::default();
    let mut settled = SETTLING;
    let mut elapsed = Duration::ZERO;
    let mut seconds = time::interval(SECOND);
    let start = seconds.tick().await;
    let mut stop = pin!(stop);
    while options.seconds.is_none_or(|end| elapsed.as_secs() < end) {
        tokio::select! {
            () = &mut stop => break,
            ended = processes.ended() => return Err(io::Error::other(ended)),
            now = seconds.tick() => elapsed = now.duration_since(start),
        }
        let (books, leases) = tokio::join!(views.books(), views.leases());
        let (now, second, average) = {
            let history = load.history();
            (history.now(), history.last(SECOND), history.last(AVERAGED))
        };
        if let Some(second) = &second {
            let (limit, books) = (options.limit, books.as_ref());
            let table = Table {
                elapsed,
                split,
                limit,
                services,
                second,
                leases,
                books,
            };
            screen.draw(&table.to_string())?;
        }
        if let Some(average) = &average {
            let overloaded = split.overloads(options.load, options.limit);
            averages.add(average, overloaded.then_some(settled));
        }
        let next = Split::at(elapsed);
        if next != split {
            split = next;
            load.offer(split.rates(options.load));
            settled = now.saturating_add(SETTLING);
        }
    }
    let totals = load.totals().into_iter().sum();
    let summary = Summary {
        elapsed: load.history().now(),
        limit: options.limit,
        totals,
        averages,
    };
    screen.say(&summary.to_string())
}
