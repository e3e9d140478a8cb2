//! Resources of a server over time, as a picture.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::meter::FIGURES;
use super::{Rest, Sample};
use crate::times::KINDS;

const SIZE: (u32, u32) = (1000, 1100);
const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(255, 127, 14), RGBColor(44, 160, 44), RGBColor(214, 39, 40)];

/// Memory, descriptors and threads each second, and p99 at rest.
pub(super) fn plot(picture: &Path, samples: &[Sample], rests: &[Rest]) -> anyhow::Result<()> {
    let area = SVGBackend::new(picture, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let panels = area.split_evenly((FIGURES.len() + 1, 1));
    let last = rests.iter().map(|rest| &rest.sample).chain(samples).map(|sample| sample.at_s).fold(60.0, f64::max);
    let end = last / 60.0;
    for (at, name) in FIGURES.iter().enumerate() {
        let points: Vec<(f64, f64)> = samples.iter().map(|sample| (sample.at_s / 60.0, sample.figures[at])).collect();
        let most = points.iter().map(|point| point.1).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(&panels[at])
            .caption(format!("{name}, each second"), ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(30)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..end, 0.0..most * 1.1)?;
        chart.configure_mesh().light_line_style(TRANSPARENT).x_desc("minutes").draw()?;
        chart.draw_series(LineSeries::new(points, &COLOURS[0]))?;
    }
    latencies(&panels[FIGURES.len()], rests, end)?;
    area.present()?;
    Ok(())
}

fn latencies(panel: &DrawingArea<SVGBackend, Shift>, rests: &[Rest], end: f64) -> anyhow::Result<()> {
    let mut chart = ChartBuilder::on(panel)
        .caption("p99 at rest, us", ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..end, (10.0..1e6_f64).log_scale())?;
    chart.configure_mesh().light_line_style(TRANSPARENT).x_desc("minutes").draw()?;
    for (kind, name) in KINDS.iter().enumerate() {
        let points =
            rests.iter().map(|rest| (rest.sample.at_s / 60.0, rest.p99_us[kind])).filter(|point| point.1 > 0.0);
        let colour = COLOURS[kind];
        let line = chart.draw_series(LineSeries::new(points, &colour))?;
        line.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE).border_style(BLACK).draw()?;
    Ok(())
}
