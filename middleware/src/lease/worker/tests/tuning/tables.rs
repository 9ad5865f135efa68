//! The tables: which values are tried, and the figures of each.

use std::{
    fmt::Write as _,
    num::NonZero,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{
    super::SECOND,
    Setting,
    load::Load,
    runs::{LoadFigures, OutageFigures, run_load, run_outage, run_step},
};

/// The runs of each load.
const LOAD_SEEDS: u64 = 10;
/// The runs of a fleet of a thousand.
const FLEET_SEEDS: u64 = 3;

/// When the figures are taken of a fleet that began at one moment, in seconds.
const STEPS: [f64; 2] = [60.0, 300.0];

/// Each table: its name, its columns, the unit of its values, and the values.
const TABLES: &str = "
window               loads   intervals  0.5 1 2 4
rise                 loads   deviations 1.5 2.2 3 4
first-sample         loads   ms         4 8 16 32 64 128
growth-while-denied  loads   -          1 1.5 2 3
early-growth         loads   -          1 1.1 1.2 1.5 2
confirmation         loads   ms         250 500 1000 2000 5000
notable              loads   -          0 0.02 0.05 0.1 0.2
surplus              loads   -          0 0.25 0.5 0.75 1 default
first-hint-spacing   loads   ms         10 25 50 100 250
longest-hint-spacing loads   ms         50 100 250 500 1000
probe-gap            loads   ms         25 50 100 200 400
awaited-interval     loads   s          0.25 0.5 1 2 5
refresh-interval     loads   s          1 2 5 10 20
jitter               steps   -          0 0.02 0.05 0.1 0.2
first-pause          outages ms         50 100 200 500 1000
longest-pause        outages s          1 2 4 8 16
calm-pause           outages intervals  0.5 1 1.5 2 3
";

impl Setting {
    /// The program with another value of what a table varies, or that of the program.
    fn with(name: &str, value: &str) -> Self {
        let mut setting = Self::DEFAULT;
        if value == "default" {
            return setting;
        }
        let value: f64 = value.parse().unwrap();
        let Self { layer, ledger, .. } = &mut setting;
        let milliseconds = SECOND.mul_f64(value / 1000.0);
        match name {
            "window" => (layer.window, layer.max_window) = (value, 5.0 * value),
            "rise" => layer.rise_deviations = value,
            "first-sample" => layer.first_fast_sample = (value / 1000.0) as f32,
            "growth-while-denied" => layer.growth_while_denied = value,
            "early-growth" => layer.holder.early_growth = value,
            "confirmation" => layer.holder.confirm_rise_after = milliseconds,
            "notable" => layer.holder.notable = value,
            "surplus" => setting.surplus = Some(value),
            "first-hint-spacing" => ledger.hint_spacing.0 = value / 1000.0,
            "longest-hint-spacing" => ledger.hint_spacing.1 = value / 1000.0,
            "probe-gap" => ledger.probe_gap = value / 1000.0,
            "awaited-interval" => ledger.awaited_interval = value,
            "refresh-interval" => setting.refresh_interval = value as _,
            "jitter" => layer.holder.jitter = value,
            "first-pause" => layer.holder.first_pause = milliseconds,
            "longest-pause" => layer.holder.max_pause_without_lease = SECOND.mul_f64(value),
            "calm-pause" => layer.holder.calm_intervals = value,
            _ => panic!("nothing is called {name}"),
        }
        setting
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Columns {
    Loads,
    Outages,
    Steps,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    columns: Columns,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    label: String,
    setting: Setting,
}

impl Table {
    fn parse(line: &'static str) -> Self {
        let mut words = line.split_whitespace();
        let [name, columns, unit] = [(); 3].map(|()| words.next().unwrap());
        let row = |value: &str| Row {
            label: format!("{value} {unit}").trim_end_matches(" -").to_owned(),
            setting: Setting::with(name, value),
        };
        Self {
            name,
            columns: match columns {
                "loads" => Columns::Loads,
                "outages" => Columns::Outages,
                _ => Columns::Steps,
            },
            rows: words.map(row).collect(),
        }
    }

    /// How the page marks the value of the program.
    pub(super) fn default_label(&self) -> String {
        let mut rows = self.rows.iter();
        let row = rows.find(|row| row.setting == Setting::DEFAULT);
        let row = row.unwrap_or_else(|| panic!("{}: no row has the default", self.name));
        format!("**{}**", row.label)
    }
}

pub(super) fn all() -> Vec<Table> {
    TABLES.trim().lines().map(Table::parse).collect()
}

/// The figures of one setting.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Measure {
    Load(Load),
    /// The master is lost for 10 s, and every lease lasts.
    Lost,
    /// No server answers for the first 20 s.
    Late,
    /// The refreshes of a fleet that began at one moment, after so many seconds.
    Step(f64),
}

impl Measure {
    fn of(columns: Columns) -> Vec<Self> {
        match columns {
            Columns::Loads => Load::ALL.map(Self::Load).into(),
            Columns::Outages => vec![Self::Lost, Self::Late],
            Columns::Steps => STEPS.map(Self::Step).into(),
        }
    }

    fn seeds(self) -> u64 {
        match self {
            Self::Load(_) => LOAD_SEEDS,
            Self::Lost | Self::Late | Self::Step(_) => FLEET_SEEDS,
        }
    }

    fn run(self, setting: &Setting, seed: u64) -> Figures {
        match self {
            Self::Load(load) => run_load(setting, load, seed).into(),
            Self::Lost => run_outage(setting, 40.0, 10.0, seed).into(),
            Self::Late => run_outage(setting, 0.0, 20.0, seed).into(),
            Self::Step(after) => [run_step(setting, after, seed), 0.0, 0.0, 0.0, 0.0],
        }
    }
}

/// The figures of a run, of which sums are taken.
type Figures = [f64; 5];

impl From<LoadFigures> for Figures {
    fn from(it: LoadFigures) -> Self {
        [
            it.refused,
            it.unused,
            it.served_after,
            it.refreshes,
            it.hints,
        ]
    }
}

impl From<OutageFigures> for Figures {
    fn from(it: OutageFigures) -> Self {
        [it.requests, it.busiest, it.leased_after, 0.0, 0.0]
    }
}

/// Means over the seeds.
#[derive(Debug, Default)]
pub(super) struct Results(Vec<(Setting, Measure, Figures)>);

impl Results {
    /// Runs everything that the tables need, on all cores.
    pub(super) fn of(tables: &[Table]) -> Self {
        let mut wanted: Vec<(Setting, Measure)> = Vec::new();
        for table in tables {
            for (row, measure) in table.rows.iter().flat_map(|row| {
                let measures = Measure::of(table.columns).into_iter();
                measures.map(move |measure| (row, measure))
            }) {
                if !wanted.contains(&(row.setting, measure)) {
                    wanted.push((row.setting, measure));
                }
            }
        }
        Self::measure(&wanted)
    }

    fn measure(wanted: &[(Setting, Measure)]) -> Self {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(vec![Figures::default(); wanted.len()]);
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let index = next.fetch_add(1, Ordering::Relaxed)
                        && let Some((setting, measure)) = wanted.get(index)
                    {
                        results.lock().unwrap()[index] = mean(setting, *measure);
                    }
                });
            }
        });
        let results = results.into_inner().unwrap().into_iter();
        let wanted = wanted.iter().zip(results);
        Self(wanted.map(|(it, figures)| (it.0, it.1, figures)).collect())
    }

    fn get(&self, setting: &Setting, measure: Measure) -> Figures {
        let mut results = self.0.iter();
        let found = results.find(|it| it.0 == *setting && it.1 == measure);
        found.expect("it was measured").2
    }

    /// A table in Markdown.
    pub(super) fn table(&self, table: &Table) -> String {
        let mut lines = match table.columns {
            Columns::Loads => String::from(
                "| | steady, % | shift, % | served after, s | spikes, % | walk, % | overload, % \
                 | refreshes | hints |\n|---|---|---|---|---|---|---|---|---|\n",
            ),
            Columns::Outages => String::from(
                "| | lost: requests | busiest second | none: requests | leased after, s | busiest \
                 second |\n|---|---|---|---|---|---|\n",
            ),
            Columns::Steps => {
                String::from("| | after a minute | after five minutes |\n|---|---|---|\n")
            }
        };
        for row in &table.rows {
            let label = if row.setting == Setting::DEFAULT {
                format!("**{}**", row.label)
            } else {
                row.label.clone()
            };
            let cells = self.cells(table.columns, &row.setting).join(" | ");
            writeln!(lines, "| {label} | {cells} |").unwrap();
        }
        lines
    }

    fn cells(&self, columns: Columns, setting: &Setting) -> Vec<String> {
        let percent = |part: f64| format!("{:.2}", 100.0 * part);
        match columns {
            Columns::Loads => {
                let [steady, shift, spikes, walk, overload] =
                    Load::ALL.map(|load| self.get(setting, Measure::Load(load)));
                let all = [steady, shift, spikes, walk, overload];
                let mean = |index: usize| all.iter().map(|it| it[index]).sum::<f64>() / 5.0;
                vec![
                    percent(steady[0]),
                    percent(shift[0]),
                    format!("{:.2}", shift[2]),
                    percent(spikes[0]),
                    percent(walk[0]),
                    percent(overload[1]),
                    format!("{:.2}", mean(3)),
                    format!("{:.2}", mean(4)),
                ]
            }
            Columns::Outages => {
                let lost = self.get(setting, Measure::Lost);
                let late = self.get(setting, Measure::Late);
                [lost[0], lost[1], late[0], late[2], late[1]]
                    .map(|figure| format!("{figure:.2}"))
                    .into()
            }
            Columns::Steps => STEPS
                .map(|after| format!("{:.2}", self.get(setting, Measure::Step(after))[0]))
                .into(),
        }
    }
}

/// The mean over all seeds.
fn mean(setting: &Setting, measure: Measure) -> Figures {
    let mut sums = Figures::default();
    for seed in 0..measure.seeds() {
        for (sum, figure) in sums.iter_mut().zip(measure.run(setting, seed)) {
            *sum += figure / measure.seeds() as f64;
        }
    }
    sums
}

/// The cells of a shift with the constants of the program.
pub(super) fn shift_cells() -> [String; 2] {
    let shift = mean(&Setting::DEFAULT, Measure::Load(Load::Shift));
    [
        format!("{:.2}", 100.0 * shift[0]),
        format!("{:.2}", shift[2]),
    ]
}
