//! The machines that answers name, looked at for their addresses.

use std::collections::BTreeSet;

use fleet_http::wire;

use super::at_once::at_once;
use super::error::CliError;
use super::session::Session;
use super::words::Machines;

/// Up to how many machines are asked for one by one. Whoever names more gets a list that is not
/// much longer than what named them.
const FEW: usize = 8;

/// Machines that were looked at, each once, and those alone that something was told of: one unit
/// must not cost the list of a whole cluster.
#[derive(Debug, Default)]
pub(crate) struct Met {
    asked: BTreeSet<String>,
    present: Vec<wire::Machine>,
    has_all: bool,
}

impl Met {
    /// Looks at the machines of these IDs that were not looked at yet; an empty ID is none.
    ///
    /// # Errors
    ///
    /// The cluster cannot be asked. That a machine is not present is no error.
    pub(crate) async fn meet<'a>(
        &mut self,
        session: &Session,
        ids: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), CliError> {
        let is_new = |id: &&str| !id.is_empty() && !self.asked.contains(*id);
        let unmet: BTreeSet<&str> = ids.into_iter().filter(is_new).collect();
        if self.has_all || unmet.is_empty() {
            return Ok(());
        }
        if self.asked.len() + unmet.len() > FEW {
            return self.meet_all(session).await;
        }
        let met = at_once(unmet.iter().map(|id| session.machine(id))).await;
        self.present.extend(CliError::all_or_none(met)?.into_iter().flatten());
        self.asked.extend(unmet.into_iter().map(str::to_owned));
        Ok(())
    }

    /// Looks at all machines that are present.
    ///
    /// # Errors
    ///
    /// The cluster cannot be asked.
    pub(crate) async fn meet_all(&mut self, session: &Session) -> Result<(), CliError> {
        if !self.has_all {
            self.present = session.machines().await?;
            self.has_all = true;
        }
        Ok(())
    }

    /// Those that were met and are present.
    pub(crate) fn present(&self) -> &[wire::Machine] {
        &self.present
    }

    /// How they are written for people.
    pub(crate) fn words(&self) -> Machines {
        Machines::new(&self.present)
    }
}
