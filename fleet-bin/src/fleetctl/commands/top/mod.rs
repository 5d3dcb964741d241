//! `top`: a live view of machines and units on a terminal.

mod feed;
mod input;
mod state;
mod usage;
mod view;

#[cfg(test)]
mod tests;

use std::io::{IsTerminal as _, stdin, stdout};
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use fleet_agent::{Clock as _, wall_time};
use fleet_unitfile::UnitName;
use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use ratatui::DefaultTerminal;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::{machine, status};
use crate::fleetctl::Context;
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use feed::Update;
use input::Request;
use state::{Page, Top};

/// Interval in which ages are drawn again.
const TICK: Duration = Duration::from_secs(1);

/// Number of journal lines in a status.
const STATUS_LINES: u32 = 10;

/// Maximum number of updates that wait for being drawn.
const QUEUE: usize = 256;

/// Runs the command.
pub(super) async fn run(context: &mut Context) -> Result<(), CliError> {
    if context.output.format() != Format::Table {
        return Err(CliError::usage("top is a live view, and has no other output format")
            .help("use \"fleetctl list-units -o jsonl\""));
    }
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(CliError::failed("top needs a terminal")
            .help("use \"fleetctl list-units\", which prints to files and pipes, too"));
    }
    // The first answer comes before the screen is cleared, so that its error is printed as usual.
    let cluster = feed::cluster(&context.session).await?;
    let (sender, updates) = mpsc::channel(QUEUE);
    let mut view = View { context, top: Top::default(), updates, sender, page_feed: Feeds::new() };
    view.top.set_cluster(cluster);
    let mut screen = Screen::open()?;
    view.follow(&mut screen).await
}

/// A terminal that shows the view. Dropping it restores the terminal.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self, CliError> {
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore());
        Ok(Self(
            terminal
                .map_err(|error| CliError::failed("cannot set up the terminal").because(error))?,
        ))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _closed = self.0.show_cursor();
        ratatui::restore();
    }
}

/// Signals that end the view.
struct Signals([Signal; 3]);

impl Signals {
    fn new() -> std::io::Result<Self> {
        let [one, two, three] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self([one?, two?, three?]))
    }

    async fn next(&mut self) {
        let [one, two, three] = &mut self.0;
        tokio::select! {
            _ = one.recv() => {}
            _ = two.recv() => {}
            _ = three.recv() => {}
        }
    }
}

/// Futures that send updates. They make progress while the view waits.
type Feeds = FuturesUnordered<LocalBoxFuture<'static, ()>>;

struct View<'a> {
    context: &'a mut Context,
    top: Top,
    updates: mpsc::Receiver<Update>,
    sender: mpsc::Sender<Update>,
    /// Fills the page.
    page_feed: Feeds,
}

impl View<'_> {
    /// Draws the view after each change, until the user ends it.
    async fn follow(&mut self, screen: &mut Screen) -> Result<(), CliError> {
        let mut signals = Signals::new()?;
        let mut keys = EventStream::new();
        let (session, sender) = (self.context.session.clone(), self.sender.clone());
        let mut feeds = Feeds::new();
        feeds.push(Box::pin(feed::follow_cluster(session.clone(), sender.clone())));
        feeds.push(Box::pin(feed::follow_usage(session, sender)));
        loop {
            self.draw(screen)?;
            let tick = self.context.clock.now().after(TICK);
            tokio::select! {
                () = signals.next() => return Ok(()),
                key = keys.next() => match key {
                    Some(Ok(Event::Key(key))) => {
                        match input::press(&mut self.top, key, wall_time()) {
                            Some(Request::Quit) => return Ok(()),
                            Some(request) => self.carry_out(request),
                            None => {}
                        }
                    }
                    // A resize only needs another drawing.
                    Some(Ok(_)) => {}
                    // The terminal is gone.
                    Some(Err(_)) | None => return Ok(()),
                },
                Some(update) = self.updates.recv() => {
                    self.apply(update);
                    while let Ok(update) = self.updates.try_recv() {
                        self.apply(update);
                    }
                }
                Some(()) = feeds.next() => {}
                Some(()) = self.page_feed.next() => {}
                () = self.context.clock.sleep_until(tick) => {}
            }
        }
    }

    fn draw(&mut self, screen: &mut Screen) -> Result<(), CliError> {
        let (now, colour) = (wall_time(), self.context.output.colour());
        let top = &mut self.top;
        screen.0.draw(|frame| {
            top.page_rows = view::page_rows(top, frame.area(), now);
            view::draw(top, colour, now, frame.buffer_mut());
        })?;
        Ok(())
    }

    fn apply(&mut self, update: Update) {
        match update {
            Update::Cluster(cluster) => self.top.set_cluster(*cluster),
            Update::Note(note) => self.top.note = note,
            Update::Usage(machine, sample) => self.top.add_sample(&machine, sample),
            Update::Lines(lines) => {
                if let Some(page) = &mut self.top.page {
                    lines.into_iter().for_each(|line| page.push(line));
                }
            }
        }
    }

    /// Opens a page, and fills it in the background.
    fn carry_out(&mut self, request: Request) {
        self.page_feed.clear();
        // Lines of the former page must not become a part of the next one.
        let (lines, mut kept) = (self.sender.clone(), Vec::new());
        while let Ok(update) = self.updates.try_recv() {
            kept.extend(Some(update).filter(|update| !matches!(update, Update::Lines(_))));
        }
        kept.into_iter().for_each(|update| self.apply(update));
        let session = self.context.session.clone();
        let (title, above) = match &request {
            Request::Logs { unit, .. } => (format!("Logs of {unit}"), None),
            Request::UnitStatus { unit } => (format!("Status of {unit}"), Some(0)),
            Request::MachineStatus { machine } => (format!("Machine {machine}"), Some(0)),
            Request::Quit | Request::Close => return,
        };
        self.top.page = Some(Page { title, lines: Vec::new(), above });
        self.page_feed.push(Box::pin(async move {
            match request {
                Request::Logs { unit, machine } => {
                    feed::follow_logs(&session, &unit, machine, &lines).await;
                }
                Request::UnitStatus { unit } => {
                    let text = async {
                        let name: UnitName = unit.parse().map_err(|error| {
                            CliError::failed(format!("{unit} is no unit name")).because(error)
                        })?;
                        status::describe(&session, &name, STATUS_LINES).await
                    };
                    feed::send_text(text.await, &lines).await;
                }
                Request::MachineStatus { machine } => {
                    feed::send_text(machine::describe(&session, &machine).await, &lines).await;
                }
                Request::Quit | Request::Close => {}
            }
        }));
    }
}
