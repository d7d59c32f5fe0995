//! The words of the published table, in each language of the docs.

use std::path::Path;

/// Headings and phrases.
pub(crate) struct Words {
    pub(crate) who: &'static str,
    pub(crate) what: &'static str,
    pub(crate) connections: &'static str,
    pub(crate) cell: &'static str,
    pub(crate) unique: &'static str,
    pub(crate) repeated: &'static str,
    pub(crate) again: &'static str,
    pub(crate) memory: &'static str,
    pub(crate) effects: &'static str,
    pub(crate) executed: &'static str,
    pub(crate) stored: &'static str,
    pub(crate) shipped_twice: &'static str,
    pub(crate) cpu: &'static str,
    pub(crate) reached: &'static str,
    pub(crate) missed: &'static str,
    pub(crate) ratio: &'static str,
    pub(crate) value: &'static str,
    pub(crate) aim: &'static str,
    pub(crate) conditions: &'static str,
    pub(crate) growth: &'static str,
    pub(crate) facts: &'static str,
    pub(crate) curve: &'static str,
    pub(crate) is_chinese: bool,
}

pub(crate) const ENGLISH: Words = Words {
    who: "",
    what: "callbacks",
    connections: "connections",
    cell: "Callbacks per second, then p50 / p99 in ms; medians of the rounds.",
    unique: "unique",
    repeated: "repeated",
    again: "each again",
    memory: "peak memory, MiB",
    effects: "effects",
    executed: "executed, {}/s",
    stored: "stored",
    shipped_twice: "wrong: {} shipped twice",
    cpu: "CPU per callback at {}, µs: program + database server",
    reached: "reached",
    missed: "missed",
    ratio: "Ratio (median of the ratios within a round)",
    value: "measured",
    aim: "aim",
    conditions: "Conditions:",
    growth: "Unique callbacks per second at {} connections (share of the first row) · p99 in ms · size of the database in MiB.",
    facts: "paid orders and facts in the tables",
    curve: "Callbacks per second by the number of facts in the tables, a line for each database",
    is_chinese: false,
};

const CHINESE: Words = Words {
    who: "",
    what: "回调",
    connections: "个连接",
    cell: "每秒回调数，其后为 p50 / p99（毫秒）；取各轮的中位数。",
    unique: "各不相同",
    repeated: "同一条重复",
    again: "逐条再来一遍",
    memory: "内存峰值（MiB）",
    effects: "副作用",
    executed: "已执行，{}/秒",
    stored: "只入库",
    shipped_twice: "错误：重复发货 {} 次",
    cpu: "{} 个连接时每个回调的 CPU（µs）：程序 + 数据库服务器",
    reached: "达到",
    missed: "未达到",
    ratio: "比值（同一轮内之比的中位数）",
    value: "实测",
    aim: "目标",
    conditions: "测量条件：",
    growth: "{} 个连接、各不相同的回调：每秒回调数（占第一行的比例）· p99（毫秒）· 数据库大小（MiB）。",
    facts: "表中已有的已付订单与事实",
    curve: "每秒回调数随表中事实数的变化，每种数据库一条线",
    is_chinese: true,
};

impl Words {
    /// By the folder of the docs that a file lies in.
    pub(crate) fn of(file: &Path) -> &'static Self {
        if file.components().any(|part| part.as_os_str() == "zh") { &CHINESE } else { &ENGLISH }
    }
}
