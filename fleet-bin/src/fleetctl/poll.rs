//! Polls units one by one, or by the lists of all units and states if that costs less.

use std::collections::BTreeMap;

use fleet_http::wire;
use fleet_unitfile::UnitName;

use super::concurrent::buffered;
use super::session::Session;
use super::wait::Observation;
use crate::ui::error::CliError;

/// Minimum number of units for which the poller requests the lists of the whole cluster. For fewer
/// units, two requests per unit cost less.
const LIST_THRESHOLD: usize = 32;

/// Number of list entries that cost as much as one request.
const ENTRIES_PER_REQUEST: usize = 100;

/// Strategy to poll many units.
#[derive(Debug, Default)]
pub(crate) struct Poller {
    /// Whether the lists turned out to cost more than single requests.
    are_lists_long: bool,
}

impl Poller {
    /// Observes all units once.
    ///
    /// # Errors
    ///
    /// A request failed.
    pub(crate) async fn poll(
        &mut self,
        session: &Session,
        units: &[&UnitName],
    ) -> Result<Vec<Observation>, CliError> {
        if units.len() < LIST_THRESHOLD || self.are_lists_long {
            let observed = buffered(units.iter().map(|unit| session.observe(unit))).await;
            return observed.into_iter().collect();
        }
        let (listed, states) = futures_util::try_join!(session.units(), session.states())?;
        self.are_lists_long = (listed.len() + states.len()) / ENTRIES_PER_REQUEST > 2 * units.len();
        let mut by_name = observations(listed, states);
        let observed =
            units.iter().map(|unit| (unit, by_name.remove(unit.as_str()).unwrap_or_default()));
        let observed =
            buffered(observed.map(async |(unit, observation)| match &observation.unit {
                // Lists omit the source, and the eligible machines of a global unit follow from it.
                Some(listed) if listed.global => session.observe(unit).await,
                _ => Ok(observation),
            }));
        observed.await.into_iter().collect()
    }
}

/// Groups the entries of the lists by unit.
fn observations(
    units: Vec<wire::UnitEntity>,
    states: Vec<wire::UnitStateEntity>,
) -> BTreeMap<String, Observation> {
    let mut by_name: BTreeMap<String, Observation> = BTreeMap::new();
    for state in states {
        by_name.entry(state.name.clone()).or_default().states.push(state);
    }
    for unit in units {
        let observation = by_name.entry(unit.name.clone()).or_default();
        observation.unit = Some(unit);
    }
    by_name
}
