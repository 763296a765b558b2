"""`view` in the browser: `stage` packs the shapes of bodies and the `loads` of joints.

`page` puts them into one file with the player, `player.js` and `renderer.js`.
"""
