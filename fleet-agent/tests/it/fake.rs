//! Tests of the fake service manager: conformance and scripted behaviour.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::journal::JournalReader as _;
use fleet_agent::testing::{
    Behaviour, Call, FakeManager, Harness, ManagerWithJournals, UnitKind, conformance,
};
use fleet_agent::{ServiceError, ServiceManager};
use fleet_core::journal::JournalQuery;
use fleet_core::unit::ExitStatus;
use fleet_core::{ActiveState, Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};

use crate::support::name;

/// A fake machine that scripts each unit requested by the suite.
pub(crate) struct FakeHarness {
    pub(crate) machine: Arc<FakeManager>,
}

#[async_trait]
impl Harness for FakeHarness {
    async fn open(&self) -> ManagerWithJournals {
        ManagerWithJournals::new(Arc::clone(&self.machine))
    }

    fn directory(&self) -> &Path {
        Path::new("/nonexistent")
    }

    fn unit(&self, unit: &UnitName, kind: UnitKind) -> UnitFile {
        match kind {
            UnitKind::ExitsWith3 => self.machine.set_behaviour(unit, Behaviour::Exits(3)),
            UnitKind::Succeeds => self.machine.set_behaviour(unit, Behaviour::Task(0)),
            UnitKind::Fails => self.machine.set_behaviour(unit, Behaviour::Task(3)),
            UnitKind::Writes => {
                self.machine.set_behaviour(unit, Behaviour::Writes(&["one", "two", "three"]));
            }
            UnitKind::WritesMore => self.machine.set_behaviour(unit, Behaviour::Writes(&["four"])),
            UnitKind::HangsInStop => self.machine.hang_stop(unit),
            UnitKind::Reloads => self.machine.set_behaviour(unit, Behaviour::Reloads),
            UnitKind::Broken => self.machine.fail_load(unit, "it is broken"),
            _ => {}
        }
        UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("it is well formed")
    }

    fn release(&self, unit: &UnitName) {
        self.machine.release(unit);
    }
}

#[tokio::test]
async fn it_conforms() {
    conformance(&FakeHarness { machine: FakeManager::new() }).await;
}

fn file() -> UnitFile {
    UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("it is well formed")
}

#[tokio::test]
async fn fake_follows_its_script() {
    let machine = FakeManager::new();
    let unit = name("a.service");
    machine.fail_load(&unit, "no");
    let refused = machine.load(&unit, &file(), Epoch(1)).await.expect_err("it is refused");
    assert!(matches!(refused, ServiceError::BadSetting { line: 1, .. }));
    machine.clear_failures(&unit);
    machine.load(&unit, &file(), Epoch(1)).await.expect("it can be loaded");
    machine.start(&unit, Generation(1)).await.expect("it starts");
    machine.crash(&unit);
    let state = machine.get(&unit).await.expect("the call succeeds").expect("it is known").state;
    assert_eq!((state.active, state.exit), (ActiveState::Failed, Some(ExitStatus::Signal(9))));
    machine.exit(&unit, 0);
    let again = machine.get(&unit).await.expect("the call succeeds").expect("it is known").state;
    assert_eq!(again, state, "an idle unit cannot exit");
    let hash = file().hash();
    let load = Call::Load { unit: unit.clone(), hash, epoch: Epoch(1) };
    assert_eq!(machine.calls(), [load.clone(), load, Call::Start(unit, Generation(1))]);
}

#[tokio::test]
async fn reboot_forgets_units_and_keeps_scripts() {
    let machine = FakeManager::new();
    let unit = name("a.service");
    machine.load(&unit, &file(), Epoch(1)).await.expect("it loads");
    machine.fail_start(&unit, "never");
    let mut changes = machine.changes();
    machine.reboot();
    assert!(changes.next().await.contains(&unit));
    assert_eq!(machine.list().await.expect("the call succeeds"), []);
    machine.load(&unit, &file(), Epoch(2)).await.expect("it loads");
    let error = machine.start(&unit, Generation(1)).await.expect_err("it is scripted");
    assert_eq!(error.to_string(), "a.service did not start: never");
}

#[tokio::test]
async fn followers_get_written_lines() {
    let machine = FakeManager::new();
    let unit = name("a.service");
    machine.load(&unit, &file(), Epoch(1)).await.expect("it loads");
    machine.write(&unit, "before");
    let query = JournalQuery::default().with_lines(1).with_follow(true);
    let mut journal = machine.journal(&unit, query).await.expect("it has a journal");
    machine.write(&unit, "after");
    assert_eq!(journal.next().await.as_deref(), Some("before"));
    assert_eq!(journal.next().await.as_deref(), Some("after"));
    machine.reboot();
    assert_eq!(journal.next().await, None);
}
