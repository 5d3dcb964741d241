//! The engine: decides which machine runs which unit, while it leads.

mod writes;

use std::sync::Arc;
use std::time::Duration;

use fleet_core::{MachineId, Revision, Timestamp};
use fleet_store::{
    BalanceNote, Leadership, Mirror, PlacementWrites, Presence, Registry, RegistryError, StoreError,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::writes::{mend, writes};
use crate::balancing::Next;
use crate::clock::wait_until;
use crate::emptying::waits_for_ups;
use crate::missing::{Missing, Sight};
use crate::planner::Planner;
use crate::wake::Wake;
use crate::witness::Nobody;
use crate::{Agent, Beat, Clock, EngineWitness, Shutdown};

/// How long to wait before a pass that the store could not take is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How long to wait until the mirror shows what was written.
///
/// What is planned before that rests on what was there before, and the store refuses it; so the
/// wait saves work and decides nothing. It has a limit, because a store that several clusters share
/// counts the revisions of all: should an answer ever carry one that another cluster made, this
/// mirror comes that far with the next change of its own, which may be a day away.
const ECHO: Duration = Duration::from_secs(1);

/// How long to wait at least before looking again whether enough units are up to go on draining.
const UPS: Duration = Duration::from_millis(100);

/// What an engine needs to run.
pub struct EngineConfig {
    /// The machine on whose behalf it stands for election.
    pub candidate: MachineId,
    /// How long it leads without a sign of life.
    pub ttl: Duration,
    /// How long a machine of the cluster stays present without a sign of life.
    pub presence_ttl: Duration,
    /// The cluster's memory, for writing.
    pub registry: Registry,
    /// The cluster's memory, for reading.
    pub mirror: Mirror,
    /// The clock of all waits.
    pub clock: Arc<dyn Clock>,
}

/// Stands for election, and plans while it leads.
pub struct Engine {
    config: EngineConfig,
    /// The candidate's place in the cluster, if that is known here.
    presence: Option<watch::Receiver<Option<Arc<Presence>>>>,
    beat: Beat,
    witness: Arc<dyn EngineWitness>,
}

/// What else than news to decide on is a reason to plan again.
#[derive(Default)]
struct Again {
    /// Time.
    at: Option<Timestamp>,
    /// What machines report after this revision.
    reports: Option<Revision>,
}

/// Why a reign is over.
enum End {
    Deposed,
    /// Nobody can say whether its last write happened, or will: only a new term can rule that out,
    /// and then see what became of it.
    Doubt,
    Shutdown,
}

impl Engine {
    /// An engine that does not run yet.
    #[must_use]
    pub fn new(config: EngineConfig) -> Self {
        let (beat, witness) = (Beat::new("engine"), Arc::new(Nobody));
        Self { config, presence: None, beat, witness }
    }

    /// By which the engine marks its turns, for the [pulse](crate::Pulse) that watches its run.
    #[must_use]
    pub fn beat(&self) -> Beat {
        self.beat.clone()
    }

    /// Lets it stand for election only while this agent has the candidate's place in the cluster.
    ///
    /// A leadership of the same candidate counts as that of an earlier life and is taken over. So
    /// of two machines with one identity, the one that was refused must not stand: it would depose
    /// the other one, and be deposed by it, again and again.
    #[must_use]
    pub fn beside(self, agent: &Agent) -> Self {
        Self { presence: Some(agent.presence()), ..self }
    }

    /// Has somebody hear what the engine does.
    #[must_use]
    pub fn witnessed(self, witness: Arc<dyn EngineWitness>) -> Self {
        Self { witness, ..self }
    }

    /// Runs until told to end; a leader then resigns, so that another can lead at once.
    pub async fn run(self, mut shutdown: Shutdown) {
        let EngineConfig { candidate, ttl, registry, clock, .. } = &self.config;
        loop {
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                may = self.wait_to_stand() => if !may { return },
            }
            let mut pause = *ttl / 3;
            // What was sent when it is dropped may yet make it the leader, for `ttl` at most.
            let elected = tokio::select! {
                biased;
                () = shutdown.wait() => return,
                elected = self.beat.turn(registry.campaign(candidate, *ttl)) => elected,
            };
            match elected {
                Ok(Some(leadership)) => {
                    tracing::info!(%candidate, term = %leadership.term(), "leading");
                    self.witness.on_lead(true);
                    let end = self.lead(leadership, &mut shutdown).await;
                    self.witness.on_lead(false);
                    match end {
                        End::Shutdown => return,
                        // Perhaps by somebody who does not lead, as an import does not.
                        End::Deposed => {
                            tracing::warn!(%candidate, "no longer leading");
                            pause = pause.min(RETRY);
                        }
                        End::Doubt => pause = RETRY,
                    }
                }
                Ok(None) => {}
                Err(error) => warn("cannot stand for election", &error),
            }
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                () = clock.sleep(pause) => {}
            }
        }
    }

    /// Waits until it makes sense to stand; `false` when that will never be again. Whoever cannot
    /// see the cluster could not decide on anything, and whoever sees that another leads need not
    /// ask.
    async fn wait_to_stand(&self) -> bool {
        let EngineConfig { candidate, mirror, .. } = &self.config;
        let Some(mut presence) = self.presence.clone() else {
            return mirror.wait_vacant(candidate).await.is_ok();
        };
        loop {
            if presence.wait_for(Option::is_some).await.is_err() {
                return false;
            }
            if mirror.wait_vacant(candidate).await.is_err() {
                return false;
            }
            if presence.borrow().is_some() {
                return true;
            }
        }
    }

    async fn lead(&self, leadership: Leadership, shutdown: &mut Shutdown) -> End {
        let leadership = Arc::new(leadership);
        let mut keeper = Keeper(tokio::spawn(keep(
            leadership.clone(),
            self.config.ttl,
            self.config.clock.clone(),
            self.beat.clone(),
        )));
        // In a fixed order, so that simulated clusters can be replayed.
        let end = tokio::select! {
            biased;
            () = shutdown.wait() => End::Shutdown,
            _ = &mut keeper.0 => End::Deposed,
            end = self.reign(&leadership) => end,
        };
        if let End::Shutdown = end {
            keeper.end().await;
            resign(leadership).await;
        }
        end
    }

    /// Plans whenever there is something new to decide on. It may be dropped at any moment: what
    /// it was writing then is whole or not there, and can no longer come once the term is over.
    async fn reign(&self, leadership: &Leadership) -> End {
        // Only who has seen all that the leaders before it decided may decide.
        if self.config.mirror.wait_for(leadership.elected()).await.is_err() {
            return End::Shutdown;
        }
        let mut wake = Wake::of(&self.config.mirror);
        let (mut planner, mut missing) = (Planner::new(), Missing::new(self.config.presence_ttl));
        loop {
            let (pass, begin) =
                (self.pass(leadership, &mut planner, &mut missing), self.config.clock.now());
            let passed = self.beat.turn(pass).await;
            self.witness.on_pass(self.config.clock.now().since(begin), passed.as_ref().err());
            let again = match passed {
                Ok(again) => again,
                Err(RegistryError::Conflict) => Again::default(),
                Err(RegistryError::Deposed { .. }) => return End::Deposed,
                Err(RegistryError::Store(StoreError::Unknown(_))) => return End::Doubt,
                Err(error) => {
                    warn("cannot write a plan", &error);
                    let at = Some(self.config.clock.now().after(RETRY));
                    Again { at, reports: None }
                }
            };
            tokio::select! {
                biased;
                news = wake.next() => if !news { return End::Shutdown },
                () = wait_until(&*self.config.clock, again.at) => {}
                () = self.wait_report(again.reports) => {}
            }
        }
    }

    /// Plans once from what is certain, writes the plan, and waits until the mirror shows it.
    /// Machines are drained when there is nothing else to do, and units moved for the sake of
    /// balance when no drain has anything to do. Returns when to plan again by itself.
    async fn pass(
        &self,
        leadership: &Leadership,
        planner: &mut Planner,
        missing: &mut Missing,
    ) -> Result<Again, RegistryError> {
        let mirror = &self.config.mirror;
        let news = mirror.news_since(planner.seen());
        // Asked after the news: if the store was lost in between, this says too little, never too
        // much. What cannot be seen for certain is not a reason to move anything.
        let (true, Some(current_for)) = (news.is_current, mirror.current_for()) else {
            return Ok(Again::default());
        };
        let sight = Sight { now: self.config.clock.now(), current_for, gaps: mirror.gaps() };
        let seen = missing.hold(&news, sight);
        let mut plan = planner.follow(&seen).clone();
        debug_assert_eq!(fleet_scheduler::check(&seen.snapshot, &plan), []);
        missing.explain(&mut plan);
        let mut again = Again { at: missing.again(), reports: None };
        let mut balance = None;
        if plan.steps.is_empty() && again.at.is_none() {
            let drain = planner.drain(&seen.snapshot);
            let waits = drain.filter(|plan| waits_for_ups(plan));
            again.reports = waits.map(|_| seen.snapshot.revision);
            plan.steps.extend(drain.into_iter().flat_map(|drain| drain.plan.steps.clone()));
            if plan.steps.is_empty() && again.reports.is_none() {
                match planner.rebalance(&seen.snapshot) {
                    Some(Next::Moves { steps, seen, noted }) => {
                        plan.steps = steps;
                        balance = Some(BalanceNote { seen, now: noted });
                    }
                    Some(Next::Wait) => again.reports = Some(seen.snapshot.revision),
                    Some(Next::Over(seen)) => {
                        tracing::info!(moved = seen.moved, "rebalanced: no move is worth it");
                        leadership.note_rebalancing(&seen, None).await?;
                    }
                    None => {}
                }
            }
        }
        let mut writes = PlacementWrites { balance, ..writes(&news.snapshot, &plan) };
        mend(&mut writes, &news.snapshot, mirror.stray_placements());
        if !writes.is_empty() {
            for step in &plan.steps {
                tracing::info!(%step, "plan");
            }
            let written = leadership.commit(&writes).await;
            self.witness.on_steps(&plan.steps, written.is_ok());
            let revision = written?;
            self.wait_shown(revision).await;
        }
        self.tidy_up().await?;
        Ok(again)
    }

    /// Waits until machines may have reported something after that revision; for ever if it is
    /// none. Not only reports make revisions; how often one looks in vain is bounded by the wait.
    async fn wait_report(&self, after: Option<Revision>) {
        let Some(after) = after else {
            return std::future::pending().await;
        };
        self.config.clock.sleep(UPS).await;
        let mut progress = self.config.mirror.subscribe();
        if progress.wait_for(|progress| progress.revision > after).await.is_err() {
            std::future::pending::<()>().await; // The other waits notice that it has ended.
        }
    }

    /// Waits a while until the mirror shows what was written; after that, its news wake the loop.
    async fn wait_shown(&self, revision: Revision) {
        tokio::select! {
            biased;
            // A mirror that has ended ends the loop as well, when it next waits for a change.
            _seen = self.config.mirror.wait_for(revision) => {}
            () = self.config.clock.sleep(ECHO) => {}
        }
    }

    /// Forgets unit files that no unit has any more.
    async fn tidy_up(&self) -> Result<(), RegistryError> {
        let unused = self.config.mirror.unused_contents();
        if !unused.is_empty() {
            self.config.registry.collect_contents(&unused).await?;
        }
        Ok(())
    }
}

/// Ends a leadership that nobody else holds on to, so that another engine can lead at once.
async fn resign(leadership: Arc<Leadership>) {
    let Some(leadership) = Arc::into_inner(leadership) else {
        return;
    };
    if let Err(error) = leadership.resign().await {
        warn("cannot resign", &error);
    }
}

/// Renews a leadership in a task of its own; dropping the guard ends the task.
struct Keeper(JoinHandle<()>);

impl Keeper {
    async fn end(mut self) {
        self.0.abort();
        let _aborted = (&mut self.0).await.is_err();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Renews until the leadership is lost.
async fn keep(leadership: Arc<Leadership>, ttl: Duration, clock: Arc<dyn Clock>, beat: Beat) {
    let mut renewed = clock.now();
    loop {
        clock.sleep(ttl / 3).await;
        match beat.turn(leadership.renew()).await {
            Ok(()) => renewed = clock.now(),
            Err(RegistryError::Deposed { .. }) => return,
            Err(_) if clock.now().since(renewed) >= ttl => return,
            Err(error) => warn("cannot renew the leadership", &error),
        }
    }
}

fn warn(what: &str, error: &RegistryError) {
    tracing::warn!(error = error as &dyn std::error::Error, "{what}");
}
