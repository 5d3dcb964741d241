//! What is asked of one timer, and what is written down of that.

use std::sync::{Arc, PoisonError};

use fleet_core::graph::systemd::{Due, Timer};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};

use super::Keeper;
use crate::ServiceError;
use crate::native::calls::write;
use crate::native::record::{Asked, UnitDirectory};
use crate::native::timer::Ask;
use crate::native::timer::entry::Entry;

impl Keeper {
    /// Does what is asked of one timer.
    pub(super) async fn on_request(
        &mut self,
        unit: &UnitName,
        ask: Ask,
    ) -> Result<(), ServiceError> {
        match ask {
            Ask::Load { file, timer, epoch } => {
                self.zones.learn(&timer);
                self.load(unit, file, timer, epoch).await
            }
            Ask::Unload if !self.entries.contains_key(unit) => Ok(()),
            Ask::Unload => self.unload(unit).await,
            Ask::Start(generation) => {
                self.note_launch(unit, generation).await?;
                self.begin(unit);
                Ok(())
            }
            Ask::Restart(generation) => {
                self.note_launch(unit, generation).await?;
                // Written down with the start, or the next daemon would take that for done.
                if let Some(entry) = self.entries.get_mut(unit) {
                    let before = entry.life.due();
                    entry.life.on_stop();
                    self.queue.change(unit, before, entry.life.due());
                }
                self.begin(unit);
                Ok(())
            }
            Ask::Pull => {
                self.require_unit(unit)?;
                self.note(unit, |asked| Asked { triggered: true, ..asked }).await?;
                self.begin(unit);
                Ok(())
            }
            Ask::Stop => {
                let noted = self.note(unit, Asked::stopped).await;
                // A disk that fails must not keep anything running.
                self.change(unit, |entry, _| entry.life.on_stop());
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
        let directory = self.machine.directory(unit.as_str());
        let before = self.entries.get(unit).map(|entry| (entry.hash, entry.asked));
        let known = before.map_or_else(Asked::default, |(_, asked)| asked);
        let asked = Asked { epoch: epoch.0, ..known };
        let hash = file.hash();
        if before.is_some_and(|(known, _)| known == hash) {
            write(&directory, "record a timer", move |at| at.write_asked(asked)).await?;
            self.change(unit, |entry, _| entry.asked = asked);
            return Ok(());
        }
        let source = file.source().to_vec();
        write(&directory, "keep a unit file", move |at| at.write_unit(&source, asked)).await?;
        if before.is_none() {
            let entry = Entry::new(timer, hash, asked, directory, self.startup);
            self.enter(unit, entry);
            self.change(unit, |_, _| ());
            return Ok(());
        }
        self.leave_index(unit);
        self.change(unit, |entry, look| {
            (entry.hash, entry.asked) = (hash, asked);
            entry.life.replace(timer, look);
        });
        self.enter_index(unit);
        self.look_at(unit);
        Ok(())
    }

    async fn unload(&mut self, unit: &UnitName) -> Result<(), ServiceError> {
        let directory = self.machine.directory(unit.as_str());
        write(&directory, "forget a timer", UnitDirectory::remove).await?;
        self.leave_index(unit);
        if let Some(entry) = self.entries.remove(unit) {
            self.queue.change(unit, entry.life.due(), Due::default());
        }
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).remove(unit);
        self.machine.feed.report(unit);
        Ok(())
    }

    /// A timer cannot be started without the unit that it is to start, nor once all are to end.
    fn require_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.machine.end.refuse_start(unit)?;
        let not_loaded = || ServiceError::NotLoaded { unit: unit.clone() };
        let entry = self.entries.get(unit).ok_or_else(not_loaded)?;
        let started = &entry.life.timer().unit;
        match self.units.is_active(started) {
            Some(_) => Ok(()),
            None => Err(ServiceError::NothingToTrigger {
                unit: unit.clone(),
                missing: started.to_string(),
            }),
        }
    }

    /// Records that fleet wants it to run.
    async fn note_launch(
        &mut self,
        unit: &UnitName,
        generation: Generation,
    ) -> Result<(), ServiceError> {
        self.require_unit(unit)?;
        let generation = generation.0;
        self.note(unit, |asked| Asked { generation, launched: true, ..asked }).await
    }

    /// Records what is asked.
    async fn note(
        &mut self,
        unit: &UnitName,
        change: impl FnOnce(Asked) -> Asked,
    ) -> Result<(), ServiceError> {
        let not_loaded = || ServiceError::NotLoaded { unit: unit.clone() };
        let entry = self.entries.get_mut(unit).ok_or_else(not_loaded)?;
        let asked = change(entry.asked);
        if asked == entry.asked {
            return Ok(());
        }
        let directory = entry.directory.clone();
        write(&directory, "record what is asked of a timer", move |at| at.write_asked(asked))
            .await?;
        entry.asked = asked;
        Ok(())
    }
}
