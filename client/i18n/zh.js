/** Simplified Chinese. Series names, code and what the server wrote stay as they are. */
import common from "./zh/common.js";
import detectors from "./zh/detectors.js";
import incidents from "./zh/incidents.js";
import lists from "./zh/lists.js";
import orders from "./zh/orders.js";
import pack from "./zh/pack.js";
import rules from "./zh/rules.js";
import run from "./zh/run.js";
import settings from "./zh/settings.js";

export default { ...common, ...run, ...orders, ...lists, ...incidents, ...rules, ...detectors, ...pack, ...settings };
