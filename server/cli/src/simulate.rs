//! `doorman simulate`: a scenario in virtual time.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use doorman_core::rounded;
use doorman_sim::{
    Amounts, MeanAndWorst, Phase, Run, RunReport, Scenario, Summary, TargetSummary, Violation,
    on_all_cores, run_scenario, trace_scenario,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{
    document,
    failure::Failure,
    output::{self, JsonFlag},
};

/// The most rows of the tables of all phases.
const MAX_ROWS: usize = 200;

/// The largest scenario.
const MAX_FILE_BYTES: u64 = doorman_config::MAX_DOCUMENT_BYTES as u64;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The server's ledger and election and the layer's lease protocol run as they are; time, network and \
    etcd are simulated. A run takes milliseconds. Exit code 1: more was leased than the capacity.\n\n\
    Examples:\n  doorman simulate examples/scenarios/scenario-two.yaml\n  \
    doorman simulate scenario.yaml --config limits.yaml\n  \
    doorman simulate scenario.yaml --seeds 1000 --json\n  \
    doorman simulate scenario.yaml --seed 7 --svg run.svg --csv run.csv --trace run.txt"
)]
pub(super) struct SimulateArguments {
    /// The scenario, in YAML; docs/SIMULATION.md has the format
    file: PathBuf,
    /// Use this document instead of the one in the scenario
    #[arg(long, env = "DOORMAN_SIMULATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Number of seeds to run, from 0 on
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,
    /// Run only this seed
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Write every second of one run: the first that failed, or the one that held the least
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the same run
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the messages and faults of the same run, the last 100,000
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    output: JsonFlag,
}

/// Returns the text for standard output. A failure has it too, if a capacity was exceeded.
pub(super) fn run(
    arguments: &SimulateArguments,
    stderr: &mut impl Write,
) -> Result<String, Failure> {
    let scenario = load(arguments, stderr)?;
    let seeds = match arguments.seed {
        Some(seed) => seed..seed.saturating_add(1),
        None => 0..arguments.seeds,
    };
    let count = seeds.end - seeds.start;
    let reports = run_all(&scenario, seeds).map_err(|violation| Failure::new(&*violation))?;
    let summary = Summary::new(reports).ok_or_else(|| Failure::new("no seed to run"))?;
    let shown = shown(&summary);
    let run = match &arguments.trace {
        None => run_scenario(&scenario, shown.seed),
        Some(_) => trace_scenario(&scenario, shown.seed),
    };
    let run = run.map_err(|it| Failure::new(&*it))?;
    write_files(arguments, &scenario, &run)?;
    let name = name(&arguments.file);
    let phases = Phase::of_run(&scenario, &run);
    let text = if arguments.output.json {
        let phases = phases.iter().map(|it| phase_json(&scenario, it));
        let phases: Vec<_> = phases.collect();
        output::pretty_json(&to_json(&name, count, &summary, &phases))?
    } else {
        let mut text = table(&name, count, &scenario, &summary);
        text += &phase_tables(&scenario, &phases, shown.seed);
        text
    };
    let Some(failed) = &summary.first_failed else {
        return Ok(text);
    };
    Err(exceeded(arguments, failed).with_output(text))
}

/// The run that is shown in detail.
fn shown(summary: &Summary) -> &RunReport {
    summary.first_failed.as_ref().unwrap_or(&summary.worst)
}

fn write_files(
    arguments: &SimulateArguments,
    scenario: &Scenario,
    run: &Run,
) -> Result<(), Failure> {
    if let Some(path) = &arguments.trace {
        write_file(path, &(run.trace.join("\n") + "\n"))?;
    }
    if let Some(path) = &arguments.csv {
        write_file(path, &csv(scenario, run))?;
    }
    if let Some(path) = &arguments.svg {
        let name = name(&arguments.file);
        let title = scenario.title().unwrap_or(&name);
        write_file(path, &doorman_sim::draw_chart(scenario, run, title)?)?;
    }
    Ok(())
}

fn load(arguments: &SimulateArguments, stderr: &mut impl Write) -> Result<Scenario, Failure> {
    let config = arguments.config.as_deref();
    let config = config
        .map(|path| document::load(path, stderr))
        .transpose()?;
    let path = &arguments.file;
    let failed = |error: &io::Error| {
        Failure::new(format!("cannot read {}", path.display())).with_cause(error)
    };
    let size = fs::metadata(path).map_err(|it| failed(&it))?.len();
    if size > MAX_FILE_BYTES {
        let message = format!("{}: must be at most {MAX_FILE_BYTES} bytes", path.display());
        return Err(Failure::new(message));
    }
    let text = fs::read_to_string(path).map_err(|it| failed(&it))?;
    Scenario::parse(&text, config)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// The name of a scenario: that of its file.
fn name(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Runs the seeds on all cores.
fn run_all(
    scenario: &Scenario,
    seeds: std::ops::Range<u64>,
) -> Result<Vec<RunReport>, Box<Violation>> {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} seeds, {eta} left");
    // Hidden without a terminal.
    let bar = ProgressBar::new(seeds.end - seeds.start)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let reports = on_all_cores(seeds, |seed| {
        let run = run_scenario(scenario, seed);
        bar.inc(1);
        run.map(|run| run.report)
    });
    bar.finish_and_clear();
    reports
}

fn exceeded(arguments: &SimulateArguments, failed: &RunReport) -> Failure {
    let seed = failed.seed;
    let overshoot = failed.first_overshoot.as_ref().map(|it| {
        let (id, capacity) = (&it.resource.id, it.resource.capacity);
        let (held, second) = (it.held, it.second);
        format!(": {id} had leases of {held} of {capacity} at second {second:.3}")
    });
    let config = arguments.config.as_ref();
    let config = config.map(|path| format!(" --config {}", path.display()));
    Failure::new(format!(
        "capacity exceeded with seed {seed}{}; replay: doorman simulate {}{} --seed {seed}",
        overshoot.unwrap_or_default(),
        arguments.file.display(),
        config.unwrap_or_default()
    ))
}

fn to_json(
    name: &str,
    seeds: u64,
    summary: &Summary,
    phases: &[serde_json::Value],
) -> serde_json::Value {
    json!({
        "scenario": name,
        "seeds": seeds,
        "held_share_median": summary.held_share_median,
        "held_share_worst": summary.worst.held_share,
        "worst_seed": summary.worst.seed,
        "unmet_share_median": summary.unmet_share_median,
        "rejected_share_median": summary.rejected_share_median,
        "admitted_peak_share": summary.admitted_peak_share,
        "overshoot_episodes": summary.overshoot_episodes,
        "peak_share": summary.peak_share,
        "targets": summary.targets.as_ref().map(targets_json),
        "failed_seed": summary.first_failed.as_ref().map(|it| it.seed),
        "shown_seed": shown(summary).seed,
        "phases": phases,
    })
}

fn targets_json(targets: &TargetSummary) -> serde_json::Value {
    let figure = |it: &MeanAndWorst| json!({"mean": it.mean, "worst": it.worst});
    json!({
        "target_use": figure(&targets.target_use),
        "overloaded_share": figure(&targets.overloaded_share),
        "drop_seconds": targets.drop_seconds.as_ref().map(figure),
        "rise_seconds": targets.rise_seconds.as_ref().map(figure),
        "mean_seconds": figure(&targets.mean_seconds),
    })
}

/// The rows of the targets, each with the mean of all seeds and the worst seed.
fn target_rows(targets: &TargetSummary) -> Vec<[String; 2]> {
    let percent = |it: &MeanAndWorst, of: &str| {
        let (mean, worst) = (100.0 * it.mean, 100.0 * it.worst);
        format!("{mean:.2} % {of} (worst seed {worst:.2} %)")
    };
    let seconds = |it: &MeanAndWorst| format!("{:.1} s (worst seed {:.1} s)", it.mean, it.worst);
    let milliseconds = |it: &MeanAndWorst| {
        let (mean, worst) = (1e3 * it.mean, 1e3 * it.worst);
        format!("{mean:.0} ms (worst seed {worst:.0} ms)")
    };
    let row = |measure: &str, value| [measure.to_owned(), value];
    vec![
        row(
            "target use",
            percent(&targets.target_use, "of min(demand, accepted)"),
        ),
        row(
            "overloaded",
            percent(&targets.overloaded_share, "of the requests sent"),
        ),
        row(
            "drop",
            output::cell(targets.drop_seconds.as_ref().map(seconds)),
        ),
        row(
            "rise",
            output::cell(targets.rise_seconds.as_ref().map(seconds)),
        ),
        row("mean time", milliseconds(&targets.mean_seconds)),
    ]
}

fn table(name: &str, seeds: u64, scenario: &Scenario, summary: &Summary) -> String {
    const OF_BOTH: &str = "of min(demand, capacity)";
    let percent = |share: f64, of: &str| format!("{:.2} % {of}", 100.0 * share);
    let row = |measure: &str, value: String| [measure.to_owned(), value];
    let (worst, seconds) = (&summary.worst, scenario.seconds());
    let peak = summary.admitted_peak_share;
    let mut rows = vec![
        row("scenario", name.to_owned()),
        row("seeds", seeds.to_string()),
        row("seconds", seconds.to_string()),
        row("clients", scenario.clients().to_string()),
        row("measured from second", scenario.measure_from().to_string()),
        row("held, median", percent(summary.held_share_median, OF_BOTH)),
        row(
            "held, worst seed",
            format!(
                "{} (seed {})",
                percent(worst.held_share, OF_BOTH),
                worst.seed
            ),
        ),
        row(
            "held, worst second of it",
            percent(worst.least_share, OF_BOTH),
        ),
        row(
            "unmet, median",
            percent(summary.unmet_share_median, OF_BOTH),
        ),
        row(
            "rejected, median",
            percent(summary.rejected_share_median, "of the demand"),
        ),
        row(
            "peak of leases",
            percent(summary.peak_share, "of the capacity"),
        ),
        row(
            "peak of admitted requests",
            output::cell(peak.map(|share| percent(share, "of the capacity"))),
        ),
        row("overshoots", summary.overshoot_episodes.to_string()),
        row("requests of the worst seed", worst.requests.to_string()),
        row("masters of the worst seed", worst.masterships.to_string()),
    ];
    rows.extend(summary.targets.iter().flat_map(target_rows));
    output::table(["MEASURE", "VALUE"], rows)
}

/// A table for each phase of a run, with a row for each resource of each client.
fn phase_tables(scenario: &Scenario, phases: &[Phase], seed: u64) -> String {
    let ids = scenario.resources();
    let mut left = MAX_ROWS;
    let mut text = String::new();
    for (number, phase) in phases.iter().enumerate() {
        let rows = scenario.holders().zip(&phase.holders).map(|(holder, it)| {
            let part = |amount: f64| {
                let percent = 100.0 * amount / it.wants;
                let of_demand =
                    (it.wants > 0.0).then(|| format!(" ({percent:.0} % of its demand)"));
                rounded(amount) + &of_demand.unwrap_or_default()
            };
            [
                (ids.get(holder.resource)).map_or(String::new(), |it| it.id.to_string()),
                holder.name,
                rounded(it.wants),
                part(it.held),
                part(it.used),
                part(it.rejected),
            ]
        });
        let rows: Vec<_> = rows.take(left).collect();
        if rows.is_empty() {
            let rest = phases.len().saturating_sub(number);
            text += &format!("\n{rest} more phases; --json has all, --csv every second\n");
            break;
        }
        left -= rows.len();
        let hidden = phase.holders.len() - rows.len();
        // Writing to a string cannot fail.
        let _infallible = writeln!(text, "\n{}", phase_title(phase, number, seed));
        text += &output::table(
            ["RESOURCE", "CLIENT", "WANTS", "HELD", "USED", "REJECTED"],
            rows,
        );
        if hidden > 0 {
            let _infallible = writeln!(text, "{hidden} more rows; --json has all");
        }
    }
    text
}

fn phase_title(phase: &Phase, number: usize, seed: u64) -> String {
    let Phase { from, to, .. } = phase;
    let changes = match &phase.begins_with[..] {
        [] => String::new(),
        changes => format!(": {}", changes.join(", ")),
    };
    let means = match number {
        0 => format!(" (means of seed {seed})"),
        _ => String::new(),
    };
    format!("second {from} to {to}{changes}{means}")
}

fn phase_json(scenario: &Scenario, phase: &Phase) -> serde_json::Value {
    let ids = scenario.resources();
    let clients = scenario.holders().zip(&phase.holders);
    let clients = clients.map(|(holder, it)| {
        json!({
            "resource": ids.get(holder.resource).map(|it| &it.id),
            "client": holder.name,
            "wants": it.wants,
            "held": it.held,
            "used": it.used,
            "rejected": it.rejected,
        })
    });
    json!({
        "from": phase.from,
        "to": phase.to,
        "begins_with": phase.begins_with,
        "clients": clients.collect::<Vec<_>>(),
    })
}

/// A line for each resource and each client at each second.
fn csv(scenario: &Scenario, run: &Run) -> String {
    let mut text =
        "second,resource,client,wants,held,used,rejected,capacity,effective\n".to_owned();
    let ids = scenario.resources().iter();
    let ids: Vec<_> = ids.map(|it| csv_field(it.id.as_str())).collect();
    let holders: Vec<_> = scenario.holders().collect();
    for sample in &run.samples {
        let sums = sample.resources.iter().enumerate();
        let sums = sums.map(|(resource, sum)| (resource, String::new(), sum));
        let clients = holders.iter().zip(&sample.holders);
        let clients = clients.map(|(it, amounts)| (it.resource, it.client.to_string(), amounts));
        for (resource, client, amounts) in sums.chain(clients) {
            let id = ids.get(resource).map_or("", String::as_str);
            let capacity = sample.capacities.get(resource).copied().unwrap_or_default();
            let effective = sample.effective.get(resource).copied().flatten();
            let effective = effective.map_or(String::new(), |it| it.to_string());
            let Amounts {
                wants,
                held,
                used,
                rejected,
            } = amounts;
            // Writing to a string cannot fail.
            let _infallible = writeln!(
                text,
                "{},{id},{client},{wants},{held},{used},{rejected},{capacity},{effective}",
                sample.second
            );
        }
    }
    text
}

fn csv_field(text: &str) -> String {
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| {
        Failure::new(format!("cannot write {}", path.display())).with_cause(&error)
    })
}
