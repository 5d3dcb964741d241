//! Requests for one timer, and their stored state.

use std::sync::{Arc, PoisonError};

use fleet_core::graph::systemd::{NextElapse, Timer};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};

use super::TimerTask;
use crate::ServiceError;
use crate::native::frontends::client::write;
use crate::native::frontends::timer::TimerRequest;
use crate::native::frontends::timer::entry::TimerEntry;
use crate::native::state::unit_directory::{RequestedState, UnitDirectory};

impl TimerTask {
    /// Carries out a request.
    pub(crate) async fn on_request(
        &mut self,
        unit: &UnitName,
        ask: TimerRequest,
    ) -> Result<(), ServiceError> {
        match ask {
            TimerRequest::Load { file, timer, epoch } => {
                self.zones.load(&timer);
                self.load(unit, file, timer, epoch).await
            }
            TimerRequest::Unload if !self.entries.contains_key(unit) => Ok(()),
            TimerRequest::Unload => self.unload(unit).await,
            TimerRequest::Start(generation) => {
                self.record_launch(unit, generation).await?;
                self.start_timer(unit);
                Ok(())
            }
            TimerRequest::Restart(generation) => {
                self.record_launch(unit, generation).await?;
                // Stored together with the start, since the next daemon would take a stop for the
                // final state.
                if let Some(entry) = self.entries.get_mut(unit) {
                    let before = entry.machine.next_elapse();
                    entry.machine.on_stop();
                    self.queue.change(unit, before, entry.machine.next_elapse());
                }
                self.start_timer(unit);
                Ok(())
            }
            TimerRequest::Pull => {
                self.require_unit(unit)?;
                self.record(unit, |requested| RequestedState { triggered: true, ..requested })
                    .await?;
                self.start_timer(unit);
                Ok(())
            }
            TimerRequest::Stop => {
                let noted = self.record(unit, RequestedState::stopped).await;
                // A failing disk must not keep a timer running, nor a later start from applying.
                self.change(unit, |entry, _| {
                    entry.requested = entry.requested.stopped();
                    entry.machine.on_stop();
                });
                noted
            }
        }
    }

    async fn load(
        &mut self,
        unit: &UnitName,
        file: UnitFile,
        timer: Arc<Timer>,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        let directory = self.context.directory(unit.as_str());
        let before = self.entries.get(unit).map(|entry| (entry.hash, entry.requested));
        let known = before.map_or_else(RequestedState::default, |(_, requested)| requested);
        let requested = RequestedState { epoch: epoch.0, ..known };
        let hash = file.hash();
        if before.is_some_and(|(known, _)| known == hash) {
            write(&directory, "store the requested state of a timer", move |at| {
                at.write_requested(requested)
            })
            .await?;
            self.change(unit, |entry, _| entry.requested = requested);
            return Ok(());
        }
        let source = file.source().to_vec();
        write(&directory, "store a unit file", move |at| at.write_unit(&source, requested)).await?;
        if before.is_none() {
            let entry = TimerEntry::new(timer, hash, requested, directory, self.startup);
            self.insert(unit, entry);
            self.change(unit, |_, _| ());
            return Ok(());
        }
        self.remove_from_index(unit);
        self.change(unit, |entry, cx| {
            (entry.hash, entry.requested) = (hash, requested);
            entry.machine.replace(timer, cx);
        });
        self.add_to_index(unit);
        self.check_unit(unit);
        Ok(())
    }

    async fn unload(&mut self, unit: &UnitName) -> Result<(), ServiceError> {
        let directory = self.context.directory(unit.as_str());
        write(&directory, "remove a timer", UnitDirectory::remove).await?;
        self.remove_from_index(unit);
        if let Some(entry) = self.entries.remove(unit) {
            self.queue.change(unit, entry.machine.next_elapse(), NextElapse::default());
        }
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).remove(unit);
        self.context.feed.report(unit);
        Ok(())
    }

    /// Returns an error if the timer or its unit is not loaded, or if a shutdown has begun.
    fn require_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.context.shutdown.refuse_start(unit)?;
        let not_loaded = || ServiceError::NotLoaded { unit: unit.clone() };
        let entry = self.entries.get(unit).ok_or_else(not_loaded)?;
        let started = &entry.machine.timer().unit;
        match self.units.is_active(started) {
            Some(_) => Ok(()),
            None => Err(ServiceError::NothingToTrigger {
                unit: unit.clone(),
                missing: started.to_string(),
            }),
        }
    }

    /// Stores that fleet has launched the timer.
    async fn record_launch(
        &mut self,
        unit: &UnitName,
        generation: Generation,
    ) -> Result<(), ServiceError> {
        self.require_unit(unit)?;
        let generation = generation.0;
        self.record(unit, |requested| RequestedState { generation, launched: true, ..requested })
            .await
    }

    /// Stores a requested state.
    async fn record(
        &mut self,
        unit: &UnitName,
        change: impl FnOnce(RequestedState) -> RequestedState,
    ) -> Result<(), ServiceError> {
        let not_loaded = || ServiceError::NotLoaded { unit: unit.clone() };
        let entry = self.entries.get_mut(unit).ok_or_else(not_loaded)?;
        let requested = change(entry.requested);
        if requested == entry.requested {
            return Ok(());
        }
        let directory = entry.directory.clone();
        write(&directory, "store the requested state of a timer", move |at| {
            at.write_requested(requested)
        })
        .await?;
        entry.requested = requested;
        Ok(())
    }
}
