//! The terminal: events, updates, and its restoration.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{process, thread};

use ferroce_stat::{Filter, read_all};
use ferroce_sys::signal::{Signal, Signals};
use ferroce_sys::{Interest, Poller};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::app::App;
use super::draw;
use super::keys::{self, Next};
use crate::recent::{Recent, RecentPackets};

/// The number of SIGHUP, for the exit status.
const HANGUP: i32 = 1;

/// How long a signal to end may wait.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// Shows the screen until the user quits or a signal asks the process to end.
pub(super) fn run(filter: &Filter, interval: Duration) -> io::Result<()> {
    let ended = watch_signals();
    let mut app = App::new(read_all(filter));
    // Also sets a panic hook that restores the terminal.
    let mut terminal = ratatui::try_init()?;
    let result = (|| {
        let mut due = Instant::now() + interval;
        // Collected only while someone looks: it costs the processes a copy of each header.
        let mut recent = None;
        while !ended.load(Ordering::Relaxed) {
            match app.followed() {
                Some(qp) if !app.paused => {
                    let recent = recent.get_or_insert_with(RecentPackets::collect);
                    app.packets =
                        recent.as_ref().map(|recent| recent.of(&qp)).map_err(Clone::clone);
                }
                Some(_) => {}
                None => (recent, app.packets) = (None, Ok(Recent::default())),
            }
            terminal.draw(|frame| draw::draw(frame, &app))?;
            let wait = due.saturating_duration_since(Instant::now()).min(LONGEST_WAIT);
            if event::poll(wait)? {
                if let Event::Key(key) = event::read()? {
                    let pressed = key.kind != KeyEventKind::Release;
                    if pressed && keys::press(&mut app, key) == Next::Quit {
                        break;
                    }
                }
            }
            if Instant::now() >= due {
                app.update(read_all(filter));
                due = Instant::now() + interval;
            }
        }
        Ok(())
    })();
    ratatui::try_restore()?;
    result
}

/// Returns a flag that is set by a signal that would end the process and leave the terminal as it is. Ends the process when
/// the terminal is gone: crossterm then reads nothing from it, again and again, and never returns.
fn watch_signals() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    if let Ok(signals) = Signals::new() {
        let flag = Arc::clone(&ended);
        thread::spawn(move || {
            let stdin = io::stdin();
            let mut poller = Poller::new();
            let signal = poller.watch(&signals, Interest::Read);
            let terminal = poller.watch(&stdin, Interest::Nothing);
            while poller.wait(None).is_ok() {
                if poller.readiness(terminal).broken {
                    process::exit(128 + HANGUP);
                }
                let arrived = poller.readiness(signal).readable;
                if arrived && !matches!(signals.wait(), Ok(Signal::Child)) {
                    flag.store(true, Ordering::Relaxed);
                }
            }
        });
    }
    ended
}
