//! The live screen.

use std::time::{Duration, Instant};

use nigh_service::ControlClient;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Gauge, Row, Table};

use super::interval::{Interval, Look};
use super::{HEAD, TENANT_HEAD, cells, look, summary, tenant_cells};
use crate::args::SortArg;

/// In the order in which `s` goes through them.
const SORTS: [SortArg; 6] =
    [SortArg::Requests, SortArg::Bytes, SortArg::Hits, SortArg::Latency, SortArg::Dirty, SortArg::Name];

/// Between columns, and between the parts of the summary.
const SPACING: usize = 2;
/// Lines for tenants; of more tenants the first are shown.
const TENANT_LINES_MOST: usize = 12;
/// Longer names are shortened.
const NAME_MOST: usize = 40;

/// The least widths of the columns: most figures fit, so columns seldom move.
const WIDTHS: [usize; HEAD.len()] = [8, 6, 9, 8, 8, 8, 9, 7, 8, 8, 6, 6];

/// How many columns of these widths fit, the first of them in any case.
fn columns(widths: &[usize], width: usize) -> usize {
    let ends = widths.iter().scan(0, |end, width| {
        *end += width + SPACING;
        Some(*end - SPACING)
    });
    ends.take_while(|end| *end <= width).count().max(1)
}

/// The parts of `text` that fit into `width`, none of them cut.
fn whole_parts(text: &str, width: usize) -> String {
    let separator = " ".repeat(SPACING);
    let parts: Vec<&str> = text.split(&separator).collect();
    let widths: Vec<usize> = parts.iter().map(|part| part.chars().count()).collect();
    parts[..columns(&widths, width)].join(&separator)
}

fn shorten(name: &mut String, most: usize) {
    if name.chars().count() > most {
        *name = name.chars().take(most - 1).chain(['…']).collect();
    }
}

/// The settings of the display.
struct View {
    interval: Option<Interval>,
    sort: SortArg,
    paused: bool,
}

/// The effect of a key.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Quit,
    Redraw,
    Nothing,
}

/// Shows the server until the user has seen enough.
pub(super) fn watch(client: &mut ControlClient, first: Look, every: Duration, sort: SortArg) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let mut view = View { interval: None, sort, paused: false };
    let mut last = first;
    let result = (|| {
        let mut next = Instant::now() + every;
        terminal.draw(|frame| view.draw(frame))?;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            if event::poll(left)? {
                match view.on(&event::read()?) {
                    Action::Quit => return Ok(()),
                    Action::Redraw => _ = terminal.draw(|frame| view.draw(frame))?,
                    Action::Nothing => {}
                }
            }
            if Instant::now() >= next {
                next += every;
                let now = look(client)?;
                if !view.paused {
                    view.interval = Some(Interval::between(&last, &now));
                }
                last = now;
                terminal.draw(|frame| view.draw(frame))?;
            }
        }
    })();
    ratatui::restore();
    result
}

/// Shows the result of `next` for each interval, given the column to sort by, until the user quits.
pub(super) fn watch_text(
    every: Duration,
    sort: SortArg,
    mut next_text: impl FnMut(SortArg) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let mut view = View { interval: None, sort, paused: false };
    let mut text = "measuring".to_owned();
    let result = (|| {
        let mut next = Instant::now() + every;
        loop {
            terminal.draw(|frame| {
                let [middle, bottom] =
                    Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
                frame.render_widget(Text::raw(&*text), middle);
                frame.render_widget(view.keys(), bottom);
            })?;
            if event::poll(next.saturating_duration_since(Instant::now()))? && view.on(&event::read()?) == Action::Quit
            {
                return Ok(());
            }
            if Instant::now() >= next {
                next += every;
                let now = next_text(view.sort)?;
                if !view.paused {
                    text = now;
                }
            }
        }
    })();
    ratatui::restore();
    result
}

impl View {
    /// The last line.
    fn keys(&self) -> Line<'static> {
        let paused = if self.paused { "  paused" } else { "" };
        let sort = format!("{:?}", self.sort).to_lowercase();
        let keys = format!("q quit  s sort by: {sort}  p pause{paused}");
        Line::raw(keys).style(Style::new().add_modifier(Modifier::REVERSED))
    }

    fn on(&mut self, event: &Event) -> Action {
        match event {
            Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) => match code {
                KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Action::Quit,
                KeyCode::Char('q') | KeyCode::Esc => Action::Quit,
                KeyCode::Char('s') => {
                    let at = SORTS.iter().position(|sort| *sort == self.sort).unwrap_or(0);
                    self.sort = SORTS[(at + 1) % SORTS.len()];
                    Action::Redraw
                }
                KeyCode::Char('p' | ' ') => {
                    self.paused = !self.paused;
                    Action::Redraw
                }
                _ => Action::Nothing,
            },
            Event::Resize(..) => Action::Redraw,
            _ => Action::Nothing,
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let tenants = self.interval.as_ref().map_or(0, |interval| interval.tenants.len());
        // With their head, and a line above it.
        let tenants = if tenants == 0 { 0 } else { (tenants + 2).min(TENANT_LINES_MOST) };
        let rows = [
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(2),
            Constraint::Length(tenants as u16),
            Constraint::Length(1),
        ];
        let [top, occupancy, _, middle, lower, bottom] = Layout::vertical(rows).areas(frame.area());
        let Some(interval) = &mut self.interval else {
            frame.render_widget(Line::raw("measuring"), top);
            return;
        };
        interval.sort(self.sort);
        frame.render_widget(Line::raw(whole_parts(&summary(interval), top.width.into())), top);
        let share = interval.resident_bytes as f64 / interval.memory_bytes.max(1) as f64;
        frame.render_widget(Gauge::default().ratio(share.clamp(0.0, 1.0)).label("cache"), occupancy);
        let exports = interval.exports.iter().map(cells);
        let mut rows = vec![HEAD.map(str::to_owned), cells(&interval.total)];
        rows.extend(exports);
        rows.iter_mut().for_each(|row| shorten(&mut row[0], NAME_MOST));
        let widths: [usize; HEAD.len()] =
            std::array::from_fn(|at| rows.iter().map(|row| row[at].chars().count()).fold(WIDTHS[at], usize::max));
        let columns = columns(&widths, middle.width.into());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = rows.into_iter().enumerate().map(|(number, cells)| {
            let cells = cells.into_iter().take(columns).enumerate().map(|(at, text)| {
                let side = if at == 0 { Alignment::Left } else { Alignment::Right };
                Cell::new(Text::raw(text).alignment(side))
            });
            // The head and the total.
            Row::new(cells).style(if number < 2 { bold } else { Style::new() })
        });
        let head = lines.next().unwrap_or_default();
        let table = Table::new(lines, widths[..columns].iter().map(|width| Constraint::Length(*width as u16)));
        frame.render_widget(table.header(head).column_spacing(SPACING as u16), middle);
        let mut lines = vec![Line::raw("")];
        if tenants > 0 {
            let line = |[name, owns, share, predicted, half, twice, four, policy]: [String; TENANT_HEAD.len()]| {
                Line::raw(format!(
                    "{name:<20}  {owns:>10}  {share:>10}  {predicted:>11}  {half:>10}  {twice:>10}  {four:>10}  {policy}"
                ))
            };
            lines.push(line(TENANT_HEAD.map(str::to_owned)).style(bold));
            lines.extend(interval.tenants.iter().map(|tenant| {
                let mut cells = tenant_cells(tenant);
                shorten(&mut cells[0], NAME_MOST);
                line(cells)
            }));
        }
        frame.render_widget(Text::from(lines), lower);
        frame.render_widget(self.keys(), bottom);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::interval::tests::look;
    use super::*;

    fn press(key: char) -> Event {
        Event::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE))
    }

    /// A narrow terminal shows fewer columns, and each number that it shows is whole.
    #[test]
    fn top_7_drops_columns_on_narrow_terminals_and_never_digits() {
        let begin = Instant::now();
        let first = look(begin, &[("database", 0, 0), ("files", 0, 0)]);
        let second = look(begin + Duration::from_secs(1), &[("database", 123_456_789, 0), ("files", 10, 5)]);
        let mut view = View { interval: Some(Interval::between(&first, &second)), sort: SortArg::Name, paused: false };
        let shown = |view: &mut View, width: u16| {
            let mut terminal = Terminal::new(TestBackend::new(width, 9)).unwrap();
            terminal.draw(|frame| view.draw(frame)).unwrap();
            let buffer = terminal.backend().buffer().clone();
            let rows = buffer.content.chunks(usize::from(width));
            rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>()).collect::<Vec<_>>()
        };
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let whole = shown(&mut view, 300);
        assert!(whole[3].contains("LATE %"), "{whole:#?}");
        let mut fewest = usize::MAX;
        for width in (40..=200).rev() {
            let rows = shown(&mut view, width);
            for at in [0, 3, 4, 5, 6] {
                let (cut, all) = (words(&rows[at]), words(&whole[at]));
                assert!(all.starts_with(&cut), "at {width}: {:?} of {:?}", rows[at], whole[at]);
            }
            let columns = words(&rows[3]).len();
            assert!(columns <= fewest && columns > 2, "at {width}: {:?}", rows[3]);
            fewest = columns;
        }
        assert!(fewest < words(&whole[3]).len());
    }

    #[test]
    fn keys_sort_pause_and_quit_and_no_size_is_too_small() {
        let begin = Instant::now();
        let first = look(begin, &[("a", 0, 0), ("b", 0, 0)]);
        let second = look(begin + Duration::from_secs(1), &[("a", 10, 0), ("b", 0, 5)]);
        let interval = Some(Interval::between(&first, &second));
        let mut view = View { interval, sort: SortArg::Requests, paused: false };
        let shown = |view: &mut View, width, height| {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| view.draw(frame)).unwrap();
            let buffer = terminal.backend().buffer().clone();
            buffer
                .content
                .chunks(usize::from(width))
                .map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n")
                .collect::<String>()
        };
        let text = shown(&mut view, 80, 12);
        for part in [
            "lirs  512 KiB of 1 MiB (50 %)  2 clients  device queue 3",
            "REQ/S",
            "100.0",
            "10 µs",
            "5.0 ms",
            "by: requests",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        assert!(text.find("\na ") < text.find("\nb "), "{text}");
        // 30 of the second's blocks were fetched ahead, of which 10 were used, one of them late, and 5 wasted.
        let wide = shown(&mut view, 113, 12);
        let row = wide.lines().find(|line| line.starts_with("a ")).unwrap();
        assert!(row.split_whitespace().collect::<Vec<_>>().ends_with(&["30", "5", "66.7", "10.0"]), "{wide}");
        assert!(wide.contains("AHEAD/S  WASTED/S  USED %  LATE %") && !text.contains("AHEAD"), "{wide}{text}");
        assert_eq!(view.on(&press('s')), Action::Redraw);
        assert_eq!(view.on(&press('s')), Action::Redraw);
        let text = shown(&mut view, 80, 12);
        assert!(text.contains("by: hits") && text.find("\nb ") < text.find("\na "), "{text}");
        assert_eq!(view.on(&press('p')), Action::Redraw);
        assert!(shown(&mut view, 80, 12).contains("paused"));
        for (width, height) in [(1, 1), (7, 3), (20, 5), (300, 80)] {
            shown(&mut view, width, height);
        }
        assert_eq!((view.on(&press('x')), view.on(&press('q'))), (Action::Nothing, Action::Quit));
        let control = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert_eq!(view.on(&control), Action::Quit);
    }
}
