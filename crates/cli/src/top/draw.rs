//! The frame: totals with sparklines, the table of the view or the details of a queue pair, and the keys.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{
    Block, Cell as TableCell, Clear, Paragraph, Row as TableRow, Sparkline, Table, TableState,
};

use ferroce_trace::render::units::{bits_per_second, counted};

use super::app::{App, View};
use super::rows::{self, Column, Row, Tone};
use super::{EXAMPLES, detail};

/// The lines above and below the table: totals, sparklines, titles, names of columns, keys.
const AROUND: u16 = 6;

/// The lines of a frame that shows everything.
pub(super) fn height(app: &App) -> u16 {
    u16::try_from(app.rows().len()).unwrap_or(u16::MAX).saturating_add(AROUND + 1)
}

/// The style of a tone.
pub(super) fn style(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Faint => Style::new().dark_gray(),
        Tone::Good => Style::new().green(),
        Tone::Warning => Style::new().yellow(),
        Tone::Bad => Style::new().red().bold(),
        Tone::Sent => Style::new().cyan(),
        Tone::Received => Style::new().light_blue(),
    }
}

/// Draws the frame.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [title, sparklines, tabs, body, keys] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(totals(app)), title);
    let [tx, rx] = Layout::vertical([Constraint::Length(1); 2]).areas(sparklines);
    let (sent, received) = (app.total.tx.iter().copied(), app.total.rx.iter().copied());
    sparkline(frame, tx, "sent     ", sent, Tone::Sent);
    sparkline(frame, rx, "received ", received, Tone::Received);
    frame.render_widget(Paragraph::new(tab_line(app)), tabs);
    match &app.detail {
        Some(key) => detail::draw(frame, body, app, key),
        None => table(frame, body, app),
    }
    frame.render_widget(Paragraph::new(key_line(app)), keys);
    if app.help {
        help(frame);
    }
}

/// The first line: how many processes and objects there are.
fn totals(app: &App) -> Line<'static> {
    let sum = |of: fn(&ferroce_stat::snapshot::Device) -> usize| -> u64 {
        app.devices().map(|(_, _, device)| of(device) as u64).sum()
    };
    let text = format!(
        "  {}, {}, {}, {}",
        counted(app.snapshot.processes.len() as u64, "process").replace("processs", "processes"),
        counted(sum(|device| device.queue_pairs.len()), "QP"),
        counted(sum(|device| device.completion_queues.len()), "CQ"),
        counted(sum(|device| device.memory_regions.len()), "MR"),
    );
    let mut line = Line::from(vec!["ferroce top".bold(), Span::raw(text)]);
    if app.paused {
        line.push_span("  paused".yellow().bold());
    }
    line
}

/// A sparkline with the newest value at the right, and that value.
pub(super) fn sparkline(
    frame: &mut Frame<'_>,
    area: Rect,
    name: &str,
    values: impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + Clone,
    tone: Tone,
) {
    let newest = values.clone().next_back().unwrap_or(0);
    let text = format!("{name}{:>12}  ", bits_per_second(newest as f64 * 8.0));
    let [label, line] =
        Layout::horizontal([Constraint::Length(text.chars().count() as u16), Constraint::Min(1)])
            .areas(area);
    frame.render_widget(Span::styled(text, style(tone)), label);
    let room = usize::from(line.width);
    let data: Vec<u64> = values.clone().skip(values.len().saturating_sub(room)).collect();
    frame.render_widget(Sparkline::default().data(&data).style(style(tone)), line);
}

fn tab_line(app: &App) -> Line<'static> {
    let mut line = Line::default();
    for (number, view) in View::ALL.into_iter().enumerate() {
        let text = format!(" {} {} ", number + 1, view.title());
        let chosen = view == app.view;
        line.push_span(if chosen { text.reversed() } else { text.into() });
    }
    if let Some(only) = app.only.as_ref().filter(|_| app.view != View::Devices) {
        line.push_span(format!("  of {} of process {}", only.device, only.pid).bold());
    }
    if app.searching || !app.search.is_empty() {
        let end = if app.searching { "█" } else { "" };
        let search = crate::style::printable(&app.search).into_owned();
        line.push_span(format!("  /{search}{end}").yellow());
    }
    line
}

fn key_line(app: &App) -> Line<'static> {
    let text = match (&app.detail, app.searching) {
        (_, true) => "type a text to search for   Enter keep   Esc clear",
        (Some(_), _) => "p packets   Esc back   Space pause   q quit   ? help",
        _ => {
            "↑↓ choose   Enter details   s sort   r reverse   / search   Space pause   q quit   ? help"
        }
    };
    Line::from(text).dark_gray()
}

/// The columns that fit, and their constraints.
fn fitting(view: View, width: u16) -> (usize, Vec<Constraint>) {
    let columns = rows::columns(view);
    let mut used = 0;
    let fits = |&&(_, length, _): &&Column| {
        used += length + 1;
        used <= width + 1
    };
    let number = columns.iter().take_while(fits).count().max(1);
    (number, columns[..number].iter().map(|column| Constraint::Length(column.1)).collect())
}

fn table(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let rows = app.rows();
    let columns = rows::columns(app.view);
    let (number, widths) = fitting(app.view, area.width);
    let (sorted, descending) = app.order();
    let names = columns[..number].iter().enumerate().map(|(index, (name, _, right))| {
        let arrow = match (index == sorted, descending) {
            (false, _) => "",
            (true, true) => "▼",
            (true, false) => "▲",
        };
        let style = if index == sorted { Style::new().bold() } else { Style::new().dark_gray() };
        cell(format!("{name}{arrow}"), *right).style(style)
    });
    let shown = rows.iter().map(|row| table_row(row, &columns[..number]));
    let mut state = TableState::default();
    if !rows.is_empty() {
        state.select(Some(app.position(&rows)));
    }
    let table = Table::new(shown, widths)
        .header(TableRow::new(names))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut state);
    if rows.is_empty() {
        let text = match (app.search.is_empty(), app.snapshot.processes.is_empty()) {
            (false, _) => "no row contains the text".to_owned(),
            (true, true) => {
                "no process has a device open; start one with `ferroce run -- COMMAND`, or \
                 `ferroce demo`; processes of other users are shown to root only"
                    .to_owned()
            }
            (true, false) => format!("no {}", app.view.title().to_lowercase()),
        };
        let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        let text = Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true });
        frame.render_widget(text.dark_gray(), area);
    }
}

fn cell(text: String, right: bool) -> TableCell<'static> {
    let alignment = if right { Alignment::Right } else { Alignment::Left };
    TableCell::from(Text::from(text).alignment(alignment))
}

fn table_row(row: &Row, columns: &[Column]) -> TableRow<'static> {
    let cells = row.cells.iter().zip(columns);
    TableRow::new(
        cells.map(|(one, (_, width, right))| {
            cell(one.fitted(*width), *right).style(style(one.tone))
        }),
    )
}

/// The keys, in a box in the middle.
fn help(frame: &mut Frame<'_>) {
    let keys = EXAMPLES.split("Keys:\n").nth(1).unwrap_or_default();
    let lines = keys.lines().count() as u16;
    let width = keys.lines().map(|line| line.chars().count()).max().unwrap_or(0) as u16;
    let all = frame.area();
    let (width, height) = ((width + 4).min(all.width), (lines + 2).min(all.height));
    let area = Rect { x: (all.width - width) / 2, y: (all.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    let text = Paragraph::new(keys).block(Block::bordered().title(" Keys ")).fg(Color::Reset);
    frame.render_widget(text, area);
}
