/** The default pack is written in English. */
export default { ruleNames: {}, ruleReasons: {} };
