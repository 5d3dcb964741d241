//! The native service manager compared with systemd: the same units and events in one run.

use std::sync::Arc;

use fleet_agent::{NativeConfig, NativeManager, ServiceManager, SystemdConfig, SystemdManager};

use crate::bench::print_line;
use crate::histories::{Case, cases, run_all};

// Holds: G-30
pub(crate) async fn native_and_systemd_units_behave_alike() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let config = NativeConfig::new(directory.path().join("native"));
    let native = NativeManager::open(config).await.expect("it opens");
    let systemd = SystemdManager::open(SystemdConfig::system()).await.expect("it opens");
    let (native, systemd): (Arc<dyn ServiceManager>, Arc<dyn ServiceManager>) = (native, systemd);
    let (ours, theirs) = (directory.path().join("ours"), directory.path().join("theirs"));
    let cases = cases(true);
    let (ours, theirs) = tokio::join!(
        run_all(&native, &ours, &cases, Case::by_native),
        run_all(&systemd, &theirs, &cases, Case::by_systemd),
    );
    assert_eq!((ours, theirs), (Vec::new(), Vec::new()), "units behave differently");
    let alike = cases.iter().filter(|case| case.by_native() == case.by_systemd()).count();
    print_line(&format!("figure: of {} units {alike} behave alike under both", cases.len()));
}
