//! What keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::{App, View};
use super::rows;

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Continue,
    Quit,
}

/// Handles a key.
pub(super) fn press(app: &mut App, key: KeyEvent) -> Next {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Next::Quit,
            _ => Next::Continue,
        };
    }
    if app.searching {
        match key.code {
            KeyCode::Enter => app.searching = false,
            KeyCode::Esc => (app.searching, app.search) = (false, String::new()),
            KeyCode::Backspace => _ = app.search.pop(),
            KeyCode::Char(letter) => app.search.push(letter),
            _ => {}
        }
        return Next::Continue;
    }
    if std::mem::take(&mut app.help) {
        return Next::Continue;
    }
    match key.code {
        KeyCode::Char('q') => return Next::Quit,
        KeyCode::Char('?' | 'h') => app.help = true,
        KeyCode::Char(' ') => app.paused = !app.paused,
        KeyCode::Char('p') if app.detail.is_some() => app.page = app.page.next(),
        KeyCode::Char('/') => app.searching = true,
        KeyCode::Char(digit @ '1'..='4') => {
            show(app, View::ALL[digit as usize - '1' as usize]);
            app.only = None;
        }
        KeyCode::Tab => show(app, View::ALL[(app.view as usize + 1) % View::ALL.len()]),
        KeyCode::Char('s' | '>') => sort(app, 1),
        KeyCode::Char('S' | '<') => sort(app, rows::columns(app.view).len() - 1),
        KeyCode::Char('r') => {
            let order = app.order_mut();
            order.1 = !order.1;
        }
        KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => back(app),
        KeyCode::Enter | KeyCode::Right => enter(app),
        KeyCode::Up | KeyCode::Char('k') => choose(app, -1),
        KeyCode::Down | KeyCode::Char('j') => choose(app, 1),
        KeyCode::PageUp => choose(app, -10),
        KeyCode::PageDown => choose(app, 10),
        KeyCode::Home => choose(app, isize::MIN),
        KeyCode::End => choose(app, isize::MAX),
        _ => {}
    }
    Next::Continue
}

fn show(app: &mut App, view: View) {
    (app.view, app.detail, app.selected) = (view, None, None);
}

fn sort(app: &mut App, by: usize) {
    let columns = rows::columns(app.view).len();
    let (column, descending) = app.order_mut();
    *column = (*column + by) % columns;
    // What is large is of interest, but words and IDs are read from the front.
    *descending = *column > 3;
}

/// Moves the choice.
fn choose(app: &mut App, by: isize) {
    let rows = app.rows();
    let last = rows.len().saturating_sub(1);
    let position = app.position(&rows).saturating_add_signed(by).min(last);
    app.selected = rows.get(position).map(|row| row.key.clone());
}

/// Shows what is behind the chosen row.
fn enter(app: &mut App) {
    if app.detail.is_some() {
        return;
    }
    let rows = app.rows();
    let Some(row) = rows.get(app.position(&rows)) else { return };
    match app.view {
        View::Devices => {
            show(app, View::QueuePairs);
            app.only = Some(row.key.clone());
        }
        View::QueuePairs => {
            app.selected = Some(row.key.clone());
            app.detail = Some(row.key.clone());
        }
        View::CompletionQueues | View::MemoryRegions => {}
    }
}

/// Goes back: from details to the list, from the objects of a device to all devices, and from a search to all rows.
fn back(app: &mut App) {
    if app.detail.take().is_some() {
        return;
    }
    if !app.search.is_empty() {
        app.search.clear();
    } else if let Some(device) = app.only.take() {
        show(app, View::Devices);
        app.selected = Some(device);
    }
}
