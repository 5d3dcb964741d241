//! Instances that have an earlier file of their template.

use std::collections::{BTreeMap, BTreeSet};

use fleet_http::wire;
use fleet_unitfile::UnitName;

use super::concurrent::{abbreviated_list, buffered};
use super::diagnosis::Diagnosis;
use super::session::Session;
use crate::ui::error::CliError;

/// Instances of one template that have an earlier file of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutdatedInstances {
    pub(crate) template: String,
    pub(crate) instances: Vec<String>,
}

/// Finds the outdated instances among these units. An instance with a file that its template never
/// had is not outdated. The templates are looked up only if instances differ from them.
pub(crate) async fn outdated_instances(
    session: &Session,
    units: &[wire::UnitEntity],
) -> Result<Vec<OutdatedInstances>, CliError> {
    let differing = differing_instances(units);
    let lookups = differing.keys().map(|template| session.revisions(template));
    let mut found = Vec::new();
    for ((template, instances), revisions) in differing.iter().zip(buffered(lookups).await) {
        // The template may have been destroyed meanwhile.
        let revisions = revisions?.unwrap_or_default();
        let hashes: BTreeSet<&str> = revisions.iter().map(|it| it.hash.as_str()).collect();
        let outdated = instances.iter().filter(|unit| hashes.contains(unit.hash.as_str()));
        let instances: Vec<String> = outdated.map(|unit| unit.name.clone()).collect();
        if !instances.is_empty() {
            found.push(OutdatedInstances { template: template.to_string(), instances });
        }
    }
    Ok(found)
}

/// Returns the instances with another file than their template, by template.
fn differing_instances(units: &[wire::UnitEntity]) -> BTreeMap<UnitName, Vec<&wire::UnitEntity>> {
    let hashes: BTreeMap<&str, &str> =
        units.iter().map(|unit| (unit.name.as_str(), unit.hash.as_str())).collect();
    let mut differing: BTreeMap<UnitName, Vec<&wire::UnitEntity>> = BTreeMap::new();
    for unit in units {
        let template = UnitName::parse(&unit.name).ok().and_then(|name| name.template());
        let template = template.filter(|template| template.as_str() != unit.name);
        if let Some(template) = template
            && hashes.get(template.as_str()).is_some_and(|hash| *hash != unit.hash)
        {
            differing.entry(template).or_default().push(unit);
        }
    }
    differing
}

impl OutdatedInstances {
    /// Describes the instances in one sentence.
    pub(crate) fn sentence(&self) -> String {
        let names: Vec<&str> = self.instances.iter().map(String::as_str).collect();
        let (list, template) = (abbreviated_list(&names), &self.template);
        match names.len() {
            1 => format!("{list} has an earlier file of {template}"),
            _ => format!("{list} have an earlier file of {template}"),
        }
    }

    /// Returns the command that updates the instances.
    pub(crate) fn remedy(&self) -> String {
        let template = &self.template;
        format!("\"fleetctl apply {template}\" updates them, with that file in the current folder")
    }

    /// Returns the warning of `doctor`.
    pub(crate) fn diagnosis(&self) -> Diagnosis {
        Diagnosis::warning(&self.template, self.sentence(), self.remedy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_compared_with_their_template() {
        let unit = |name: &str, hash: &str| wire::UnitEntity {
            name: name.into(),
            hash: hash.into(),
            ..wire::UnitEntity::default()
        };
        let units = [
            unit("web@.service", "b"),
            unit("web@1.service", "a"),
            unit("web@2.service", "b"),
            unit("web@3.service", "c"),
            unit("lone@1.service", "a"),
            unit("web.service", "a"),
        ];
        let differing = differing_instances(&units);
        let names: Vec<_> = differing.values().flatten().map(|unit| unit.name.as_str()).collect();
        assert_eq!(names, ["web@1.service", "web@3.service"]);
    }
}
