//! Looks at the units that a command waits for, each by itself or all of them in the lists of the
//! cluster, whichever asks less of it.

use std::collections::BTreeMap;

use fleet_http::wire;
use fleet_unitfile::UnitName;

use super::at_once::at_once;
use super::error::CliError;
use super::session::Session;
use super::wait::Sight;

/// From how many units on lists are tried. To look at one unit by itself takes two requests.
const MANY: usize = 32;

/// How many entries of a list cost as much as a request.
const ENTRIES: usize = 100;

/// How to look at many units.
#[derive(Debug, Default)]
pub(crate) struct Sights {
    /// The lists were longer than the looks at single units would have taken.
    are_lists_long: bool,
}

impl Sights {
    /// Looks at these units once.
    ///
    /// # Errors
    ///
    /// One of them could not be looked at.
    pub(crate) async fn look(
        &mut self,
        session: &Session,
        units: &[&UnitName],
    ) -> Result<Vec<Sight>, CliError> {
        if units.len() < MANY || self.are_lists_long {
            let looks = at_once(units.iter().map(|unit| session.sight(unit))).await;
            return looks.into_iter().collect();
        }
        let (listed, states) = futures_util::try_join!(session.units(), session.states())?;
        self.are_lists_long = (listed.len() + states.len()) / ENTRIES > 2 * units.len();
        let mut seen = sights(listed, states);
        let looks = units.iter().map(|unit| (unit, seen.remove(unit.as_str()).unwrap_or_default()));
        let looks = at_once(looks.map(async |(unit, sight)| match &sight.unit {
            // Lists do not show what tells where it is to run.
            Some(listed) if listed.global => session.sight(unit).await,
            _ => Ok(sight),
        }));
        looks.await.into_iter().collect()
    }
}

/// What lists show of each unit.
fn sights(units: Vec<wire::Unit>, states: Vec<wire::UnitState>) -> BTreeMap<String, Sight> {
    let mut seen: BTreeMap<String, Sight> = BTreeMap::new();
    for state in states {
        seen.entry(state.name.clone()).or_default().states.push(state);
    }
    for unit in units {
        let sight = seen.entry(unit.name.clone()).or_default();
        sight.unit = Some(unit);
    }
    seen
}
