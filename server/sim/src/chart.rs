//! The chart of a run: for each resource the sums, and below them its clients.

use std::ops::Range;

use crate::{Amounts, Resource, Run, Scenario, ScenarioHolder};
use doorman_openapi::Unit;
use plotters::prelude::SVGBackend;
use plotters::{
    chart::{ChartBuilder, ChartContext},
    coord::{Shift, cartesian::Cartesian2d, types::RangedCoordf64},
    drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea},
    element::{Polygon, Rectangle, Text},
    series::{AreaSeries, DashedLineSeries, LineSeries},
    style::{BLACK, Color, RGBAColor, RGBColor, ShapeStyle, WHITE},
};

const WIDTH: u32 = 1_100;
/// The part of the width that the legends take.
const LEGEND_WIDTH: u32 = 210;
const TITLE_HEIGHT: u32 = 64;
const SUMS_HEIGHT: u32 = 330;
const HOLDERS_HEIGHT: u32 = 250;
/// The most clients of a resource that are drawn.
const MAX_HOLDERS: usize = 200;
/// The most that are named, with what each wants.
const MAX_NAMED: usize = 6;

const CAPACITY: RGBColor = RGBColor(200, 30, 30);
const WANTS: RGBColor = RGBColor(30, 90, 200);
const HELD: RGBColor = RGBColor(20, 140, 70);
const ADMITTED: RGBColor = RGBColor(130, 60, 160);
const EFFECTIVE: RGBColor = RGBColor(230, 120, 0);
const ACCEPTED: RGBColor = RGBColor(90, 90, 90);
const NO_MASTER: RGBColor = RGBColor(120, 120, 120);
const HOLDERS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Axes<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// The amounts of one resource, and of the clients that use it.
struct Chart<'r> {
    scenario: &'r Scenario,
    run: &'r Run,
    index: usize,
    resource: &'r Resource,
    /// Their positions in the samples.
    holders: Vec<(usize, ScenarioHolder)>,
}

/// An entry of a legend, for a line or an area.
struct Entry {
    text: String,
    sign: Sign,
}

enum Sign {
    Line(RGBColor),
    Dashes(RGBColor),
    Area(RGBAColor),
    None,
}

/// A chart could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ChartError(#[from] DrawError);

/// Draws a run as SVG.
///
/// # Errors
/// [`ChartError`] if the library that draws fails.
pub fn draw_chart(scenario: &Scenario, run: &Run, title: &str) -> Result<String, ChartError> {
    let mut svg = String::new();
    let resources = scenario.resources();
    let height = (TITLE_HEIGHT + SUMS_HEIGHT + HOLDERS_HEIGHT) * resources.len() as u32;
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let areas = area.split_evenly((resources.len(), 1));
        for (index, (area, resource)) in areas.iter().zip(resources).enumerate() {
            let holders = scenario.holders().enumerate();
            let chart = Chart {
                scenario,
                run,
                index,
                resource,
                holders: holders.filter(|(_, it)| it.resource == index).collect(),
            };
            chart.draw(area, title)?;
        }
        area.present()?;
    }
    Ok(svg)
}

impl Chart<'_> {
    fn draw(&self, area: &Area<'_>, title: &str) -> Result<(), DrawError> {
        let (head, rest) = area.split_vertically(TITLE_HEIGHT);
        let (sums, holders) = rest.split_vertically(SUMS_HEIGHT);
        let Resource {
            id,
            capacity,
            algorithm,
            ..
        } = self.resource;
        let algorithm = serde_json::to_value(algorithm).unwrap_or_default();
        let algorithm = algorithm.as_str().unwrap_or_default();
        let unit = self.unit();
        let (clients, seed) = (self.holders.len(), self.run.report.seed);
        let sides = format!(
            "{id}: {algorithm}, capacity {capacity} {unit}, {clients} clients, seed {seed}"
        );
        draw_text(&head, title, (14, 12), 20)?;
        draw_text(&head, &sides, (14, 40), 14)?;
        self.draw_sums(&sums)?;
        self.draw_holders(&holders)
    }

    /// The unit of the amounts.
    fn unit(&self) -> String {
        match (self.resource.unit, self.resource.per) {
            (Unit::Gauge, _) => "units".to_owned(),
            (Unit::Rate, 1.0) => "per second".to_owned(),
            (Unit::Rate, per) => format!("per {per} s"),
        }
    }

    fn sends_requests(&self) -> bool {
        self.holders.iter().any(|(_, it)| it.sends_requests)
    }

    /// An amount of all clients over time.
    fn sum(&self, of: impl Fn(&Amounts) -> f64) -> Vec<(f64, f64)> {
        let samples = self.run.samples.iter();
        let sums = samples.filter_map(|it| Some((it.second, of(it.resources.get(self.index)?))));
        sums.collect()
    }

    fn draw_sums(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let held = self.sum(|it| it.held);
        let wants = self.sum(|it| it.wants);
        let capacities = self.capacities();
        let shows_leases = !self.resource.is_leased_whole();
        let admitted = self.sum(|it| it.used);
        let lines = [&held, &wants, &capacities, &admitted];
        let top = lines.into_iter().flatten().map(|it| it.1);
        let top = top.fold(0.0, f64::max);
        let mut legend = Vec::new();
        let (plot, side) = area.split_horizontally(WIDTH - LEGEND_WIDTH);
        let unit = format!("all clients, {}", self.unit());
        let mut axes = axes(&plot, self.scenario, top, &unit)?;
        if self.shade_without_master(&mut axes, top)? {
            legend.push(Entry {
                text: "no master".to_owned(),
                sign: Sign::Area(NO_MASTER.mix(0.2)),
            });
        }
        let mut area_series = |points: Vec<(f64, f64)>, color: RGBColor| {
            let series = AreaSeries::new(points, 0.0, color.mix(0.25));
            axes.draw_series(series.border_style(line(color, 2)))?;
            Ok::<_, DrawError>(())
        };
        legend.push(Entry::dashes("capacity", CAPACITY));
        legend.push(Entry::line("wanted", WANTS));
        if shows_leases {
            area_series(held, HELD)?;
            legend.push(Entry::area("leased", HELD));
        } else {
            area_series(admitted.clone(), ADMITTED)?;
            legend.push(Entry::area("admitted", ADMITTED));
        }
        if shows_leases && self.sends_requests() {
            axes.draw_series(LineSeries::new(admitted, line(ADMITTED, 2)))?;
            legend.push(Entry::line("admitted", ADMITTED));
        }
        axes.draw_series(LineSeries::new(wants, line(WANTS, 2)))?;
        axes.draw_series(DashedLineSeries::new(capacities, 8, 5, line(CAPACITY, 2)))?;
        if let Some(accepted) = self.accepted() {
            axes.draw_series(DashedLineSeries::new(accepted, 8, 5, line(ACCEPTED, 2)))?;
            legend.push(Entry::dashes("target accepts", ACCEPTED));
        }
        let effective = self.effective();
        if !effective.is_empty() {
            axes.draw_series(LineSeries::new(effective, line(EFFECTIVE, 2)))?;
            legend.push(Entry::line("effective capacity", EFFECTIVE));
        }
        draw_legend(&side, &legend)
    }

    /// The rate that the target of the resource accepts over time, at most the amounts that are
    /// drawn; `None` without a target.
    fn accepted(&self) -> Option<Vec<(f64, f64)>> {
        let mut targets = self.scenario.targets.iter();
        let target = targets.find(|it| it.resource == self.index)?;
        let samples = self.run.samples.iter();
        let points = samples.filter_map(|it| {
            let most = it.capacities.get(self.index)?;
            let accepted = target.accepts(it.second) * self.resource.per;
            Some((it.second, accepted.min(*most)))
        });
        Some(points.collect())
    }

    /// The effective capacity over time, where clients were told one.
    fn effective(&self) -> Vec<(f64, f64)> {
        let samples = self.run.samples.iter();
        let points =
            samples.filter_map(|it| Some((it.second, it.effective.get(self.index).copied()??)));
        points.collect()
    }

    /// The capacity over time, in steps.
    fn capacities(&self) -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for sample in &self.run.samples {
            let Some(capacity) = sample.capacities.get(self.index).copied() else {
                continue;
            };
            match points.last().copied() {
                Some((_, last)) if last != capacity => {
                    points.push((sample.second, last));
                    points.push((sample.second, capacity));
                }
                Some(_) if sample.second < self.scenario.seconds().floor() => {}
                Some(_) | None => points.push((sample.second, capacity)),
            }
        }
        points
    }

    fn draw_holders(&self, area: &Area<'_>) -> Result<(), DrawError> {
        let shows_requests = self.sends_requests();
        let got = |it: &Amounts| if shows_requests { it.used } else { it.held };
        let are_named = self.holders.len() <= MAX_NAMED;
        let amounts = |index: usize| {
            let samples = self.run.samples.iter();
            samples.filter_map(move |it| Some((it.second, *it.holders.get(index)?)))
        };
        let drawn = self.holders.get(..MAX_HOLDERS).unwrap_or(&self.holders);
        let all = drawn.iter().flat_map(|(index, _)| amounts(*index));
        let top = all.map(|(_, it)| {
            if are_named {
                got(&it).max(it.wants)
            } else {
                got(&it)
            }
        });
        let top = top.fold(0.0, f64::max);
        let (plot, side) = area.split_horizontally(WIDTH - LEGEND_WIDTH);
        let unit = format!("each client, {}", self.unit());
        let mut axes = axes(&plot, self.scenario, top, &unit)?;
        self.shade_without_master(&mut axes, top)?;
        let verb = if shows_requests { "admitted" } else { "leased" };
        let mut legend = Vec::new();
        for ((index, holder), color) in drawn.iter().zip(HOLDERS.iter().cycle().copied()) {
            let points = amounts(*index).map(|(second, it)| (second, got(&it)));
            if !are_named {
                axes.draw_series(LineSeries::new(points, line(color, 1)))?;
                continue;
            }
            let wants = amounts(*index).map(|(second, it)| (second, it.wants));
            axes.draw_series(DashedLineSeries::new(wants, 6, 6, line(color, 1)))?;
            axes.draw_series(LineSeries::new(points, line(color, 2)))?;
            legend.push(Entry::line(&holder.name, color));
        }
        if are_named {
            legend.push(Entry::note(&format!("solid: {verb}")));
            legend.push(Entry::note("dashed: wanted"));
        } else {
            legend.push(Entry::note(&format!("{verb}, {} clients", drawn.len())));
        }
        draw_legend(&side, &legend)
    }

    /// Shades the seconds in which a node had no master. Returns whether there were any.
    fn shade_without_master(&self, axes: &mut Axes<'_, '_>, top: f64) -> Result<bool, DrawError> {
        let mut outages: Vec<(f64, f64)> = Vec::new();
        for sample in self.run.samples.iter().filter(|it| !it.has_master) {
            match outages.last_mut() {
                Some(last) if last.1 >= sample.second => last.1 = sample.second + 1.0,
                _ => outages.push((sample.second, sample.second + 1.0)),
            }
        }
        let has_outages = !outages.is_empty();
        let end = self.scenario.seconds();
        axes.draw_series(outages.into_iter().map(|(from, until)| {
            let corners = [(from, 0.0), (until.min(end), 1.1 * top)];
            Rectangle::new(corners, NO_MASTER.mix(0.2).filled())
        }))?;
        Ok(has_outages)
    }
}

impl Entry {
    fn line(text: &str, color: RGBColor) -> Self {
        let sign = Sign::Line(color);
        Self {
            text: text.to_owned(),
            sign,
        }
    }

    fn dashes(text: &str, color: RGBColor) -> Self {
        let sign = Sign::Dashes(color);
        Self {
            text: text.to_owned(),
            sign,
        }
    }

    fn area(text: &str, color: RGBColor) -> Self {
        let sign = Sign::Area(color.mix(0.4));
        Self {
            text: text.to_owned(),
            sign,
        }
    }

    fn note(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            sign: Sign::None,
        }
    }
}

fn draw_legend(area: &Area<'_>, entries: &[Entry]) -> Result<(), DrawError> {
    for (entry, y) in entries.iter().zip((24..).step_by(22)) {
        let rectangle = |x: i32, width: i32, height: i32, style: ShapeStyle| {
            let (top, bottom) = (y + 6 - height, y + 6 + height);
            let corners = [(x, top), (x + width, top), (x + width, bottom), (x, bottom)];
            area.draw(&Polygon::new(corners, style))
        };
        let mut start = 34;
        match entry.sign {
            Sign::Line(color) => rectangle(4, 22, 1, color.filled())?,
            Sign::Dashes(color) => {
                rectangle(4, 9, 1, color.filled())?;
                rectangle(17, 9, 1, color.filled())?;
            }
            Sign::Area(color) => rectangle(4, 22, 6, color.filled())?,
            Sign::None => start = 4,
        }
        draw_text(area, &entry.text, (start, y), 14)?;
    }
    Ok(())
}

fn draw_text(
    area: &Area<'_>,
    text: &str,
    position: (i32, i32),
    size: i32,
) -> Result<(), DrawError> {
    area.draw(&Text::new(text.to_owned(), position, ("sans-serif", size)))
}

fn axes<'a, 'b>(
    area: &'a Area<'b>,
    scenario: &Scenario,
    top: f64,
    unit: &str,
) -> Result<Axes<'a, 'b>, DrawError> {
    let amounts: Range<f64> = 0.0..if top > 0.0 { 1.1 * top } else { 1.0 };
    let mut axes = ChartBuilder::on(area)
        .margin(12)
        .margin_right(28)
        .x_label_area_size(40)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..scenario.seconds(), amounts)?;
    axes.configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.1))
        .x_label_formatter(&|second| format!("{second:.0}"))
        .y_label_formatter(&|amount| short(*amount))
        .x_desc("seconds")
        .y_desc(unit)
        .label_style(("sans-serif", 14))
        .draw()?;
    Ok(axes)
}

/// An amount of an axis, such as `2.5` or `400`.
fn short(amount: f64) -> String {
    format!("{}", (amount * 1_000.0).round() / 1_000.0)
}

fn line(color: RGBColor, width: u32) -> ShapeStyle {
    color.stroke_width(width)
}
