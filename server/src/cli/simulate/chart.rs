//! The chart of a run: for each resource the sums, and below them its clients.

use std::ops::Range;

use doorman_server::simulation::{Resource, Run, Scenario};
use plotters::prelude::SVGBackend;
use plotters::{
    chart::{ChartBuilder, ChartContext, SeriesLabelPosition},
    coord::{Shift, cartesian::Cartesian2d, types::RangedCoordf64},
    drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea},
    element::{PathElement, Rectangle},
    series::{AreaSeries, DashedLineSeries, LineSeries},
    style::{BLACK, Color, RGBColor, ShapeStyle, WHITE},
};

const WIDTH: u32 = 1_100;
const SUMS_HEIGHT: u32 = 400;
const CLIENTS_HEIGHT: u32 = 240;
/// The most clients of a resource that are drawn.
const MAX_CLIENTS: usize = 200;
/// The most that are named, with what each wants.
const MAX_NAMED: usize = 6;

const CAPACITY: RGBColor = RGBColor(200, 30, 30);
const WANTS: RGBColor = RGBColor(30, 90, 200);
const HELD: RGBColor = RGBColor(20, 140, 70);
const NO_MASTER: RGBColor = RGBColor(120, 120, 120);
const CLIENTS: [RGBColor; 6] = [
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

/// Draws a run as SVG.
pub(super) fn draw(scenario: &Scenario, run: &Run, title: &str) -> Result<String, DrawError> {
    let mut svg = String::new();
    let resources = scenario.resources();
    let height = (SUMS_HEIGHT + CLIENTS_HEIGHT) * resources.len() as u32;
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let areas = area.split_evenly((resources.len(), 1));
        for (index, (area, resource)) in areas.iter().zip(resources).enumerate() {
            let (sums, clients) = area.split_vertically(SUMS_HEIGHT);
            let title = format!("{title}: {}", resource.id);
            draw_sums(&sums, scenario, run, (index, resource), &title)?;
            draw_clients(&clients, scenario, run, resource)?;
        }
        area.present()?;
    }
    Ok(svg)
}

fn draw_sums(
    area: &Area<'_>,
    scenario: &Scenario,
    run: &Run,
    (index, resource): (usize, &Resource),
    title: &str,
) -> Result<(), DrawError> {
    let sums = run.samples.iter().filter_map(|it| {
        let sum = it.resources.get(index)?;
        Some((it.second, sum.wants, sum.held))
    });
    let sums: Vec<_> = sums.collect();
    let largest = sums.iter().map(|it| it.1.max(it.2));
    let top = largest.fold(resource.capacity, f64::max);
    let mut axes = axes(area, scenario, top, title, "sum")?;
    shade_without_master(&mut axes, run, top)?;
    let held = sums.iter().map(|it| (it.0, it.2));
    axes.draw_series(AreaSeries::new(held, 0.0, HELD.mix(0.25)).border_style(line(HELD, 2)))?
        .label("held")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], line(HELD, 4)));
    let wants = sums.iter().map(|it| (it.0, it.1));
    axes.draw_series(LineSeries::new(wants, line(WANTS, 2)))?
        .label("wanted")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], line(WANTS, 2)));
    let ends = [0.0, scenario.seconds()].map(|second| (second, resource.capacity));
    axes.draw_series(DashedLineSeries::new(ends, 8, 5, line(CAPACITY, 2)))?
        .label("capacity")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], line(CAPACITY, 2)));
    draw_legend(&mut axes, SeriesLabelPosition::LowerLeft)
}

fn draw_clients(
    area: &Area<'_>,
    scenario: &Scenario,
    run: &Run,
    resource: &Resource,
) -> Result<(), DrawError> {
    let resources = scenario.client_resources().enumerate();
    let clients = resources.filter(|(_, it)| *it == resource).map(|it| it.0);
    let clients: Vec<_> = clients.take(MAX_CLIENTS).collect();
    let are_named = clients.len() <= MAX_NAMED;
    let amounts = |client: usize| {
        let samples = run.samples.iter();
        samples.filter_map(move |it| Some((it.second, *it.clients.get(client)?)))
    };
    let all = clients.iter().flat_map(|client| amounts(*client));
    let top = all.map(|(_, it)| {
        if are_named {
            it.held.max(it.wants)
        } else {
            it.held
        }
    });
    let top = top.fold(0.0, f64::max);
    let unit = if are_named {
        "held, dashed: wanted"
    } else {
        "held by each client"
    };
    let mut axes = axes(area, scenario, top, "", unit)?;
    shade_without_master(&mut axes, run, top)?;
    let names: Vec<_> = scenario.client_names().collect();
    for (client, color) in clients.into_iter().zip(CLIENTS.iter().cycle().copied()) {
        let held = amounts(client).map(|(second, it)| (second, it.held));
        if !are_named {
            axes.draw_series(LineSeries::new(held, line(color, 1)))?;
            continue;
        }
        let wants = amounts(client).map(|(second, it)| (second, it.wants));
        axes.draw_series(DashedLineSeries::new(wants, 6, 6, line(color, 1)))?;
        axes.draw_series(LineSeries::new(held, line(color, 2)))?
            .label(names.get(client).cloned().unwrap_or_default())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], line(color, 2)));
    }
    if are_named {
        draw_legend(&mut axes, SeriesLabelPosition::UpperLeft)?;
    }
    Ok(())
}

fn draw_legend<'a, 'b: 'a>(
    axes: &mut Axes<'a, 'b>,
    position: SeriesLabelPosition,
) -> Result<(), DrawError> {
    axes.configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 14))
        .draw()
}

fn axes<'a, 'b>(
    area: &'a Area<'b>,
    scenario: &Scenario,
    top: f64,
    title: &str,
    unit: &str,
) -> Result<Axes<'a, 'b>, DrawError> {
    let mut chart = ChartBuilder::on(area);
    chart
        .margin(12)
        .margin_right(28)
        .x_label_area_size(34)
        .y_label_area_size(64);
    if !title.is_empty() {
        chart.caption(title, ("sans-serif", 20));
    }
    let amounts: Range<f64> = 0.0..if top > 0.0 { 1.1 * top } else { 1.0 };
    let mut axes = chart.build_cartesian_2d(0.0..scenario.seconds(), amounts)?;
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

/// Shades the seconds in which no server was master.
fn shade_without_master(axes: &mut Axes<'_, '_>, run: &Run, top: f64) -> Result<(), DrawError> {
    let mut outages: Vec<(f64, f64)> = Vec::new();
    for sample in run.samples.iter().filter(|it| !it.has_master) {
        match outages.last_mut() {
            Some(last) if last.1 >= sample.second => last.1 = sample.second + 1.0,
            _ => outages.push((sample.second, sample.second + 1.0)),
        }
    }
    if outages.is_empty() {
        return Ok(());
    }
    let shade = |(from, until)| {
        let corners = [(from, 0.0), (until, 1.1 * top)];
        Rectangle::new(corners, NO_MASTER.mix(0.2).filled())
    };
    let shaded = axes.draw_series(outages.into_iter().map(shade))?;
    shaded.label("no master").legend(|(x, y)| {
        Rectangle::new([(x, y - 5), (x + 20, y + 5)], NO_MASTER.mix(0.2).filled())
    });
    Ok(())
}

/// An amount of an axis, such as `2.5` or `400`.
fn short(amount: f64) -> String {
    format!("{}", (amount * 1_000.0).round() / 1_000.0)
}

fn line(color: RGBColor, width: u32) -> ShapeStyle {
    color.stroke_width(width)
}
