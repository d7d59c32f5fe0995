//! A picture of lines, as SVG.
//!
//! Here: axes, lines, markers and labels, in colours for a light and a dark page; lines differ by marker too, and are
//! named where they end. The words are in both languages of the docs, which share the picture. Not here: what is
//! drawn (`growth`).

use std::fmt::Write as _;

use crate::report::thousands;

/// What is drawn.
pub(crate) struct Curve {
    /// Labels of the horizontal axis, at equal distances.
    pub(crate) at: Vec<String>,
    pub(crate) lines: Vec<Line>,
}

/// One line.
pub(crate) struct Line {
    pub(crate) name: String,
    /// One for each label.
    pub(crate) values: Vec<f64>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 120.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 72.0;

/// Colours that also those can tell apart who see fewer; the darker of each pair on white.
const STYLE: &str = "\
    svg { font: 13px system-ui, sans-serif; --ink: #24292f; --grid: #d0d7de; --c0: #0072b2; --c1: #d55e00; --c2: #007a5a }
    @media (prefers-color-scheme: dark) {
      svg { --ink: #d0d7de; --grid: #444c56; --c0: #56b4e9; --c1: #f0a35e; --c2: #3fcf9f }
    }
    text { fill: var(--ink) } .grid { stroke: var(--grid) } .line { fill: none; stroke-width: 2 }
    .s0 { stroke: var(--c0); fill: var(--c0) } .s1 { stroke: var(--c1); fill: var(--c1) } .s2 { stroke: var(--c2); fill: var(--c2) }
    .n0 { fill: var(--c0) } .n1 { fill: var(--c1) } .n2 { fill: var(--c2) } .line.s0, .line.s1, .line.s2 { fill: none }";

impl Curve {
    pub(crate) fn svg(&self) -> String {
        let most = self.lines.iter().flat_map(|line| &line.values).copied().fold(1.0, f64::max);
        let step = nice(most / 5.0);
        let top = (most / step).ceil() * step;
        let x = |index: usize| {
            let last = self.at.len().saturating_sub(1).max(1) as f64;
            LEFT + (WIDTH - LEFT - RIGHT) * index as f64 / last
        };
        let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"Callbacks per second by the number of facts in the tables\">\n  <style>\n{STYLE}\n  </style>\n"
        );
        for tick in 0..=(top / step).round() as usize {
            let value = tick as f64 * step;
            let at = y(value);
            let _ = writeln!(
                svg,
                "  <line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.5,
                thousands(value)
            );
        }
        for (index, label) in self.at.iter().enumerate() {
            let (x, y) = (x(index), HEIGHT - BOTTOM + 20.0);
            let _ = writeln!(svg, "  <text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>");
        }
        svg += &axis_titles();
        for (number, (line, label)) in self.lines.iter().zip(self.label_heights(&y)).enumerate() {
            let points: Vec<(f64, f64)> =
                line.values.iter().enumerate().map(|(index, value)| (x(index), y(*value))).collect();
            svg += &draw(number % 3, &line.name, &points, label);
        }
        svg + "</svg>\n"
    }

    /// Where the names of the lines stand: at their ends, but not upon each other.
    fn label_heights(&self, y: &impl Fn(f64) -> f64) -> Vec<f64> {
        const APART: f64 = 17.0;
        let mut order: Vec<(usize, f64)> =
            self.lines.iter().map(|line| y(line.values.last().copied().unwrap_or(0.0))).enumerate().collect();
        order.sort_by(|one, other| one.1.total_cmp(&other.1));
        for index in 1..order.len() {
            order[index].1 = order[index].1.max(order[index - 1].1 + APART);
        }
        order.sort_by_key(|(line, _)| *line);
        order.into_iter().map(|(_, height)| height).collect()
    }
}

fn axis_titles() -> String {
    let (middle, bottom) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 20.0);
    let height = (TOP + HEIGHT - BOTTOM) / 2.0;
    format!(
        "  <text x=\"{middle:.1}\" y=\"{bottom:.1}\" text-anchor=\"middle\">paid orders and facts in the tables · \
         表中已有的已付订单与事实</text>\n  <text transform=\"translate(18 {height:.1}) rotate(-90)\" \
         text-anchor=\"middle\">callbacks per second · 每秒回调数</text>\n"
    )
}

fn draw(number: usize, name: &str, points: &[(f64, f64)], label: f64) -> String {
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut svg = format!("  <polyline class=\"line s{number}\" points=\"{}\"/>\n", path.join(" "));
    for (x, y) in points {
        let marker = match number {
            0 => format!("<circle class=\"s0\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
            1 => format!("<rect class=\"s1\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\"/>", x - 4.0, y - 4.0),
            _ => format!("<path class=\"s2\" d=\"M{x:.1} {:.1}l5 9h-10z\"/>", y - 5.5),
        };
        let _ = writeln!(svg, "  {marker}");
    }
    let (x, y) = (WIDTH - RIGHT + 12.0, label + 4.5);
    let _ = writeln!(svg, "  <text class=\"n{number}\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>");
    svg
}

/// The next of 1, 2, 5, 10, 20 …
fn nice(value: f64) -> f64 {
    let magnitude = 10_f64.powf(value.max(1.0).log10().floor());
    let leading = value / magnitude;
    let rounded = [1.0, 2.0, 5.0].into_iter().find(|step| leading <= *step).unwrap_or(10.0);
    rounded * magnitude
}
