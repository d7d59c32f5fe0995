//! Other people's payment software, to talk with in the interop tests.
//!
//! Here: which packages in which versions. Not here: how packages are installed (`packages`), and what the peers are
//! asked (`crates/payonce-channels/tests/peers/`).

use std::path::PathBuf;

use crate::{
    packages,
    shell::{self, Outcome},
};

const NPM: [&str; 3] = ["wechatpay-axios-plugin@0.9.6", "alipay-sdk@4.14.0", "standardwebhooks@1.1.1"];

/// `cryptography` comes with `wechatpayv3`; it is named because a script uses it, and fixed because a new
/// major would be another test.
const PYPI: [&str; 4] =
    ["wechatpayv3==2.0.4", "alipay-sdk-python==3.7.1411", "standardwebhooks==1.1.0", "cryptography==50.0.2"];

/// Installs what is not there yet, and gives the folder.
pub(crate) fn install() -> Outcome<PathBuf> {
    let folder = shell::peers_folder();
    packages::npm(&folder, &NPM, 18)?;
    packages::pypi(&folder, &PYPI)?;
    Ok(folder)
}
